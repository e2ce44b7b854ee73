"""The runner of documents finds what is wrong: an example that lies must fail."""

import pytest

from tests.documents import Mismatch, blocks, command, commands, run_document


def document(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text.replace("'''", "```"), encoding="utf-8")
    return path


def run(tmp_path, text):
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    return run_document(document(tmp_path, text), folder)


def test_true_document_runs(tmp_path):
    text = """
'''json file=data/a.json
{"a": 1}
'''
'''python
import json
a = json.load(open("data/a.json"))["a"]
print(a, "and more")
'''

It prints:

'''output
1 and ...
'''
'''pycon
>>> a + 1
2
'''
'''console
$ make something          # for the reader
$ python -c 'print("x")' | cat
x
$ python \\
    -c 'exit(3)'  # fails
$ sievenet up             # needs a running fabric
'''
'''text
whatever
'''
"""
    assert run(tmp_path, text) == 4


@pytest.mark.parametrize(
    "text",
    [
        "'''python\nprint(1)\n'''\n'''output\n2\n'''",
        "'''output\n2\n'''",
        "'''pycon\n>>> 1 + 1\n3\n'''",
        "'''console\n$ python -c 'print(1)'\n2\n'''",
        "'''console\n$ python -c 'exit(1)'\n'''",
        "'''console\n$ python -c ''  # fails\n'''",
        "'''json file=../outside.json\n{}\n'''",
    ],
)
def test_lie_is_found(tmp_path, text):
    with pytest.raises(Mismatch, match=r"page\.md:"):
        run(tmp_path, text)


def test_error_names_the_line_of_the_document(tmp_path):
    with pytest.raises(ZeroDivisionError) as caught:
        run(tmp_path, "# title\n\n'''python\nx = 0\n1 / x\n'''\n")
    assert caught.traceback[-1].lineno + 1 == 5


def test_skipped_block_is_left_alone(tmp_path):
    assert run(tmp_path, "<!-- skip: needs two terminals -->\n'''python\n1 / 0\n'''\n") == 0
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, "<!-- skip: this one -->\n'''python\n1 / 0\n'''\n\n'''python\n1 / 0\n'''\n")


def test_blocks_know_where_they_stand():
    text = "a\n```python\nx\n```\n\n- item\n\n  ```json file=f.json\n  {}\n  ```\n"
    first, second = blocks(text)
    assert (first.language, first.body, first.line) == ("python", "x\n", 3)
    assert (second.language, second.file, second.body) == ("json", "f.json", "{}\n")


def test_commands_have_their_output():
    first, second = commands("$ sievenet a ' # 1'\nout\nput\n$ sievenet b  # fails\n")
    assert (first.text, first.expected, first.fails) == ("sievenet a ' # 1'", "out\nput\n", False)
    assert (second.text, second.fails) == ("sievenet b", True)
    assert command("sievenet up  # needs a free port").needs == "needs a free port"
