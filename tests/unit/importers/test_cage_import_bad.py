"""Files that cannot be imported are refused in one sentence that names the known formats."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagecage.errors import PagecageError
from tests.builders.imports import read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ('{"a": 1,\n "b": }', "line 2"),
        ("a:\n  - b\n c: [", "line"),
        ("{}", "not a file that can be imported"),
        ("[]", "not a file that can be imported"),
        ("hello", "not a file that can be imported"),
        ("MemoryCat=3\n", "not a file that can be imported"),
        ('{"services": {"a": 1}}', "not a file that can be imported"),
        ('[{"Id": "a", "HostConfig": {"Memory": "much"}}]', "has a known format, but"),
        ('{"Volumes": [{"VolumeType": "gp9", "Size": 1}]}', "gp9"),
        ("[Service]\nMemoryMax=lots\n", "lots"),
        ("[Service]\nIOReadIOPSMax=500\n", "has no device"),
        (
            '{"type": "probe", "probe_version": 1, "summary": {"random_read_ios_per_second": "x"}}',
            "has a known format, but",
        ),
        ("[" * 100_000, "JSON"),
        ("a: &a [*a]\nb: *b\n", "YAML"),
        ("services: &a {db: *a}\n", "refers to itself"),
        (
            "\n".join(
                [
                    "a0: &a0 [x]",
                    *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
                ]
            ),
            "too many values",
        ),
    ],
)
def test_bad_input_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(PagecageError) as caught:
        read(text)
    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 2


KEYS = [
    *(
        "HostConfig",
        "Id",
        "Memory",
        "BlkioDeviceReadBps",
        "services",
        "mem_limit",
        "deploy",
        "resources",
        "limits",
    ),
    *(
        "memory",
        "cpu",
        "apiVersion",
        "kind",
        "spec",
        "items",
        "containers",
        "Volumes",
        "VolumeType",
        "Size",
    ),
    *("sizeGb", "type", "sku", "diskSizeGb", "summary", "probe_version", "phases", "a"),
]
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
)


@given(TREES)
def test_any_tree_is_read_or_refused(tree: Any) -> None:
    with contextlib.suppress(PagecageError):
        read(json.dumps(tree))
