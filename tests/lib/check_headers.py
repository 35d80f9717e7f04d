#!/usr/bin/env python3
"""Every header compiles alone: no header relies on what was included before it."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
COMMAND = ["gcc", "-std=gnu17", "-D_GNU_SOURCE", '-DQUEEN_VERSION="0"', "-Wall", "-Wextra", "-Werror", "-Wno-unused",
           "-Isrc", "-Itests", "-include", "src/base/banned.h", "-fsyntax-only", "-x", "c", "-"]


def compile_alone(header):
    name = header.relative_to(REPO / ("src" if (REPO / "src") in header.parents else "tests"))
    source = f'#include "{name}"\n#include "{name}"\n'  # twice: the guard works
    done = subprocess.run(COMMAND, cwd=REPO, input=source, capture_output=True, text=True)
    return header, done.stderr if done.returncode != 0 else ""


def main():
    headers = sorted(h for d in ("src", "tests/lib", "tests/sim") for h in (REPO / d).rglob("*.h"))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, errors in pool.map(compile_alone, headers):
            if errors:
                bad += 1
                print(f"{header.relative_to(REPO)} does not compile alone:\n{errors}")
    print(f"{len(headers)} headers, {bad} bad")
    return 1 if bad or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
