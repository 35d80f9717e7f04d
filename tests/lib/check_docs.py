#!/usr/bin/env python3
"""What README.md, CONTRIBUTING.md and docs/ name is there.

  tests/lib/check_docs.py QUEEN

Links lead to files and headings; files of this tree exist, and the functions that docs/request-path.md follows are in
them; settings and metrics are in the program's tables; a quoted log line (`WARN queen-s3: text ..`) is a text of the
sources; each name that src/api looks for in a request is a field in the tables of the routes, and each code of an error
is in docs/api.md.
"""

import pathlib
import re
import subprocess
import sys

REPO = pathlib.Path(__file__).resolve().parents[2]
PAGES = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted((REPO / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(r"(?<![\w./<>-])((?:src|tests|scripts|docs|bench)/[\w./-]*\w)")
LOG_LINE = re.compile(r"`(?:INFO|WARN|ERROR) [\w-]+: ([^`]+)`")
REFUSED_FIELDS = {"tenant", "tenantId", "tenant_id"}  # wherever they stand: kv_tenant_not_an_input
FAMILY_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


def anchors(text):
    """GitHub's names of the headings."""
    heads = re.findall(r"^#+ +(.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page, text):
    for target, anchor in LINK.findall(text):
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield f"no file {target}"
        elif anchor and anchor not in anchors(path.read_text()):
            yield f"no heading #{anchor} in {target or page.name}"


def missing_files(text):
    for name in set(PATH.findall(text)):
        if not (REPO / name).exists() and not list(REPO.glob(name + ".*")) and not list(REPO.glob(name + "_*")):
            yield f"no {name}"
    for name in set(re.findall(r"`(\w+/[\w*]+\.[ch])`", text)):
        if not list((REPO / "src").glob(name)):
            yield f"no src/{name}"


def missing_functions(text):
    """`module/file.c` `function`, `function` .. (a file alone: of src/sink) names functions of that file."""
    for row in re.findall(r"^\|.*\|$", text, re.M):
        source, name = "", ""
        for word in re.findall(r"`([\w/.]+)`", row):
            if word.endswith(".c"):
                name = word if "/" in word else "sink/" + word
                path = REPO / "src" / name
                source = path.read_text() if path.exists() else ""
            elif "_" in word and name and not re.search(rf"\b{word}\b", source):
                yield f"no {word} in {name}"


def unknown_names(text, settings, metrics):
    for name in set(re.findall(r"\bQUEEN_[A-Z0-9_]*[A-Z0-9]\b", text)):
        if name not in settings and not any(s.startswith(name) for s in settings):
            yield f"no setting {name}"
    for name in set(re.findall(r"\bqueen_(?:s3|raft|kv|process|queue|dlq|clock|uptime|parked)_\w+", text)):
        if FAMILY_SUFFIX.sub("", name) not in metrics and name not in metrics:
            yield f"no metric {name}"


def unknown_lines(text, sources):
    for line in LOG_LINE.findall(text):
        said = re.split(r"\.\.| \w+=| \d|<", line.removeprefix("FATAL: "))[0].strip()
        if said not in sources:
            yield f"no log line '{said}'"


def undocumented_fields(documented):
    """What the parsers of requests compare keys with, of bodies and query strings."""
    leaves = {re.split(r"[.?\]:]", name)[-1] for name in re.findall(r"^\| `([^` ]+)` \|", documented, re.M)}
    for path in sorted((REPO / "src" / "api").glob("*.c")):
        text = path.read_text()
        names = re.findall(r'key[.>-]+text, SPAN_LIT\("(\w+)"\)', text)
        names += re.findall(r'query_\w+\([^;]*?, "(\w+)",', text)
        names += re.findall(r'^    X\(\w+, "(\w+)"\)', text, re.M)
        for name in names:
            if name not in leaves and name not in REFUSED_FIELDS:
                yield f"src/api/{path.name}: the field {name} is in no table of a route"


def undocumented_codes(page):
    """Words for programs in errors: those in the code are on the page."""
    for path in sorted((REPO / "src" / "api").glob("*.c")):
        text = re.sub(r'"\s*"', "", path.read_text())
        codes = re.findall(r'\b[45]\d\d,\s*"([a-z]\w+)"', text) + re.findall(r'"(kv_[a-z_]+)"', text)
        for code in codes:
            if f"`{code}`" not in page and f'"{code}"' not in page:
                yield f"src/api/{path.name}: the code {code} is not in docs/api.md"


def said_by(queen, option):
    return subprocess.run([queen, option], check=True, capture_output=True, text=True).stdout


def main():
    queen = sys.argv[1]
    settings = set(re.findall(r"QUEEN_\w+", said_by(queen, "--settings-doc")))
    for path in (REPO / "tests").rglob("*.py"):
        settings |= set(re.findall(r"environ(?:\.get)?[\[(]\"(QUEEN_\w+)\"", path.read_text()))
    metrics = set(re.findall(r"`(queen_\w+)", said_by(queen, "--metrics-doc")))
    # Adjacent literals of the sources joined, as the compiler does.
    sources = re.sub(r'"\s*"', "", "".join(p.read_text() for p in (REPO / "src").rglob("*.c")))
    problems = [
        *sorted(set(undocumented_fields(said_by(queen, "--api-doc")))),
        *sorted(set(undocumented_codes((REPO / "docs" / "api.md").read_text()))),
    ]
    for page in PAGES:
        text = page.read_text()
        found = [*broken_links(page, text), *unknown_names(text, settings, metrics), *unknown_lines(text, sources)]
        if page.name != "first-change.md":  # its files come with its diffs: first_change.py
            found += missing_files(text)
        if page.name == "request-path.md":
            found += missing_functions(text)
        problems += [f"{page.relative_to(REPO)}: {problem}" for problem in sorted(set(found))]
    print(*problems, f"{len(PAGES)} pages, {len(problems)} problems", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
