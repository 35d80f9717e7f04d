#!/usr/bin/env python3
"""Counts single tests in a meson test log: count.py <builddir>/meson-logs/testlog.json

A cmocka program counts as its tests, one that ends in `N passed, N failed` as these, any other as one. A program that died (a signal, a sanitizer,
a timeout) counts as at least one failure. Prints what failed, then `N passed, N failed, N skipped`.
"""

import json
import re
import sys


def count(record):
    output = record.get("stdout", "") + record.get("stderr", "")
    passed = sum(int(n) for n in re.findall(r"\[  PASSED  \] (\d+) test\(s\)", output))
    failed = sum(int(n) for n in re.findall(r"\[  FAILED  \] (\d+) test\(s\)", output))
    skipped = sum(int(n) for n in re.findall(r"\[  SKIPPED \] (\d+) test\(s\)", output))
    own = re.findall(r"^(\d+) passed, (\d+) failed", output, re.M)
    if own and passed == 0:
        passed, failed = int(own[-1][0]), int(own[-1][1])
    if record["result"] == "SKIP":
        return 0, 0, max(1, skipped)
    if record["result"] not in ("OK", "EXPECTEDFAIL"):
        return passed, max(1, failed), skipped
    return (passed, 0, skipped) if passed + skipped > 0 else (1, 0, 0)


def main():
    totals = [0, 0, 0]
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            record = json.loads(line)
            result = count(record)
            totals = [a + b for a, b in zip(totals, result)]
            if result[1]:
                print(f"FAILED: {record['name']} ({record['result']})")
                print(record.get("stdout", "")[-6000:], record.get("stderr", "")[-6000:], sep="\n")
    print("{} passed, {} failed, {} skipped".format(*totals))


if __name__ == "__main__":
    main()
