"""Specs: named variants of kernels in a TOML file beside them, `attention.toml` for `attention.py`.

[attention_fwd.d128]                    # KERNEL.VARIANT; the first variant is the default
example = "examples.attention"          # what makes inputs for `wspec run`: a function of examples.py beside the kernel
options = { num_warps = 8 }             # of the launch and of the compiler
[attention_fwd.d128.signature]
q_desc = "tensordesc<bf16[1, 1, 128, 128]>"
[attention_fwd.d128.constexprs]
HEAD_DIM = 128

[attention_fwd.d128_causal]
like = "d128"                           # everything of that variant, then what stands here
constexprs = { CAUSAL = true }
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wspec.diagnostics import bad_input, unknown
from wspec.specs.signature import Signature, value_of

_TABLES = ("signature", "constexprs", "options")


def spec_path(kernel_file: Path) -> Path:
    """Where the spec of a kernel's file is looked for."""
    return kernel_file.with_suffix(".toml")


def read_variants(path: Path, kernel: str) -> dict[str, Any]:
    """The variants of a kernel as the file has them, in order; none if the file does not name it. Raises WspecError."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise bad_input(f"{path}: {error}") from None
    variants = data.get(kernel, {})
    if not isinstance(variants, dict) or not all(isinstance(variant, dict) for variant in variants.values()):
        raise bad_input(f"{path}: [{kernel}] must hold tables, one a variant", f"for example [{kernel}.default]")
    return variants


def variant_signature(path: Path, kernel: str, variant: str | None, names: Mapping[str, Any]) -> Signature:
    """The signature of the variant, the first one by default. Raises WspecError."""
    variants = read_variants(path, kernel)
    if not variants:
        raise bad_input(f"{path} has no variant of {kernel}", "give the signature with --sig")
    chosen = next(iter(variants)) if variant is None else variant
    return _resolve(path, kernel, chosen, variants, names, ())


def _resolve(
    path: Path, kernel: str, chosen: str, variants: Mapping[str, Any], names: Mapping[str, Any], seen: tuple[str, ...]
) -> Signature:
    if chosen not in variants:
        raise unknown("variant", chosen, variants, where=f"{path}: {kernel} has ")
    if chosen in seen:
        raise bad_input(f"{path}: {kernel}.{chosen} is like itself")
    data = variants[chosen]
    where = f"{path}: {kernel}.{chosen}"
    if strange := sorted(set(data) - {"like", "example", *_TABLES}):
        raise bad_input(f"{where} has no field {strange[0]!r}", f"it may have: like, example, {', '.join(_TABLES)}")
    own = _own_signature(where, data, names)
    if "like" not in data:
        return own
    return _resolve(path, kernel, str(data["like"]), variants, names, (*seen, chosen)).updated(own)


def _own_signature(where: str, data: Mapping[str, Any], names: Mapping[str, Any]) -> Signature:
    tables = [data.get(name, {}) for name in _TABLES]
    for name, table in zip(_TABLES, tables, strict=True):
        if not isinstance(table, dict):
            raise bad_input(f"{where}: {name} must be a table")
    types, values, options = tables
    example = data.get("example", "")
    if not isinstance(example, str):
        raise bad_input(f"{where}: example must be the name of a function")
    for name, text in types.items():
        if not isinstance(text, str):
            raise bad_input(f'{where}: signature.{name} must be the text of a type, such as "*bf16:16"')
    resolved = {name: _value(f"{where}: constexprs.{name}", value, names) for name, value in values.items()}
    return Signature(types, resolved, options, example)


def _value(where: str, value: Any, names: Mapping[str, Any]) -> Any:
    """Text that begins with a module of the kernel's file, as in "tl.float16", is a name; other text is itself."""
    is_name = isinstance(value, str) and value.partition(".")[0] in names and "." in value
    return value_of(where, value, names) if is_name else value
