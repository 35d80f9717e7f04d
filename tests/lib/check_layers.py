#!/usr/bin/env python3
"""Modules use only modules above them (docs/architecture.md) and only those they name.

The order is that of subdir('src/...') in the root meson.build. A file of src/<module>/ may include headers of
its own module and of those its meson.build names as dependencies, directly or through one of them. What links
is checked by the build itself: a unit test links only what its module names.
"""

import pathlib
import re
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]


def main():
    order = re.findall(r"^\s*subdir\('src/(\w+)'\)", (REPO / "meson.build").read_text(), re.M)
    problems = []
    reach = {}
    for module in order:
        text = (REPO / "src" / module / "meson.build").read_text()
        lists = re.findall(r"dependencies:\s*\[([^\]]*)\]", text)
        named = {name for part in lists for name in re.findall(r"\w+", part)} & set(order)
        for name in named:
            if order.index(name) >= order.index(module) and name != module:
                problems.append(f"src/{module} names {name}, which is below it")
        reach[module] = {module} | named | {r for n in named for r in reach.get(n, set())}
        for path in sorted((REPO / "src" / module).glob("*.[ch]")):
            for used in re.findall(r'^#include "(\w+)/', path.read_text(), re.M):
                if used not in reach[module]:
                    problems.append(f"{path.relative_to(REPO)} includes {used}/, which {module} does not name")
    unlisted = {p.name for p in (REPO / "src").iterdir() if p.is_dir() and any(p.glob("*.c"))} - set(order)
    problems += [f"src/{name} is not in meson.build" for name in sorted(unlisted)]
    print(*problems, f"{len(order)} modules, {len(problems)} problems", sep="\n")
    return 1 if problems or not order else 0


if __name__ == "__main__":
    sys.exit(main())
