#!/usr/bin/env python3
"""docs/first-change.md does what it says: its diffs, applied in order to a copy of this tree, and its commands, run there
as they are printed.

  tests/lib/first_change.py [--keep] [FOLDER]    the copy is made in FOLDER (default: a temporary one)

A ```diff block is applied with `git apply`, a ```sh block is run with bash, and a ```json block is what the block before
it must have printed; the first that fails ends it. The page's build folder is set up here: with ccache, what was built
of this tree before is not built again.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "first-change.md"
BLOCK = re.compile(r"^## (?P<step>[^\n]+)$|^```(?P<kind>diff|sh|json)\n(?P<text>.*?)^```$", re.M | re.S)
OPTIONS = ["--buildtype=debug", "-Doptimization=1", "-Db_sanitize=address,undefined"]


def copy_tree(folder):
    skip = shutil.ignore_patterns("build", "build-*", ".git", "__pycache__")
    shutil.copytree(REPO, folder, ignore=skip, symlinks=True, dirs_exist_ok=True)


def run(command, folder, text=None):
    """What it printed; None, after showing that, when it failed."""
    env = {
        **os.environ,
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_NOHASHDIR": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
    }
    done = subprocess.run(
        command, cwd=folder, env=env, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode == 0:
        return done.stdout
    print(f"FAILED: {text or ' '.join(command)}\n{done.stdout}")
    return None


def do(kind, text, folder, before):
    if kind == "diff":
        return run(["git", "apply", "--whitespace=error"], folder, text)
    if kind == "sh":
        return run(["bash", "-eu"], folder, text)
    if text.strip() in before:
        return before
    print(f"FAILED: {before!r} has no {text.strip()}")
    return None


def follow(folder):
    """Number of blocks done, or None when one failed."""
    step, done, printed = "", 0, ""
    for block in BLOCK.finditer(PAGE.read_text()):
        if block["step"]:
            step = block["step"]
            continue
        began = time.monotonic()
        printed = do(block["kind"], block["text"], folder, printed)
        if printed is None:
            print(f"docs/first-change.md: under '{step}'")
            return None
        print(f"{step}: {block['kind']}, {time.monotonic() - began:.1f} s", flush=True)
        done += 1
    return done


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true", help="leaves the copy there")
    arguments = parser.parse_args()
    made = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="queen-first-change-"))
    folder = made.resolve() / "queen"
    try:
        copy_tree(folder)
        ready = run(["meson", "setup", "build-asan", *OPTIONS], folder)
        done = None if ready is None else follow(folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
            if arguments.folder is None:
                shutil.rmtree(made, ignore_errors=True)
    if not done:
        sys.exit(1)
    print(f"docs/first-change.md: {done} blocks done")


if __name__ == "__main__":
    main()
