"""The examples of docs/api.md: each command is run as it is printed, in order, on one broker, and answers what is
printed below it."""

import json
import pathlib
import re
import subprocess

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "api.md"
BLOCK = re.compile(r"^```(sh|json)\n(.*?)^```$", re.M | re.S)


def same_shape(example, answer):
    """The same fields, in kind; an example's text is a stand-in, its null may be anything."""
    if isinstance(example, dict):
        return (
            isinstance(answer, dict)
            and set(example) == set(answer)
            and all(same_shape(value, answer[key]) for key, value in example.items())
        )
    if isinstance(example, list):
        return (
            isinstance(answer, list)
            and len(example) == len(answer)
            and all(same_shape(e, a) for e, a in zip(example, answer))
        )
    return example is None or type(example) is type(answer)


def test_the_examples_of_the_api(env):
    broker = env.broker().start()
    printed = None
    blocks = BLOCK.findall(PAGE.read_text())
    assert sum(kind == "sh" for kind, _ in blocks) > 5
    for kind, text in blocks:
        if kind == "json":
            assert same_shape(json.loads(text), json.loads(printed)), f"{printed}\nis not like\n{text}"
            continue
        command = text.replace("localhost:6632", f"127.0.0.1:{broker.port}").replace("curl -s ", "curl -sS --fail-with-body ")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed = done.stdout
