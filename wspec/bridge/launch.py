"""A JITFunction that compiles through wspec and launches exactly as Triton's own."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import triton
from triton import knobs
from triton.compiler import ASTSource, CompiledKernel
from triton.tools.tensor_descriptor import TensorDescriptor

from wspec.bridge import cache, digest, inductor, printed
from wspec.bridge.cache import Group, Result
from wspec.bridge.files import line_of
from wspec.bridge.frontend import HOPPER, KernelSource
from wspec.bridge.launcher import Starts, has_hooks, starts, torch_memory
from wspec.bridge.proof import Checker
from wspec.bridge.versions import VERSION
from wspec.bridge.versions.internals import internal
from wspec.bridge.without_request import WithoutRequest, asks, error_in, failed
from wspec.diagnostics import Remark, bad_input
from wspec.ir.assembly import WAIT
from wspec.ir.loc import FileLoc
from wspec.options import Options

_allocation = internal("triton.runtime", "_allocation")
Autotuner = internal("triton.runtime.autotuner", "Autotuner")
Heuristics = internal("triton.runtime.autotuner", "Heuristics")
JITFunction = internal("triton.runtime.jit", "JITFunction")

Obtain = Callable[[KernelSource], tuple[Result, Group]]
Load = Callable[[KernelSource, Result, Group], Any]
Run = Callable[..., None]


class WspecFunction(JITFunction):  # type: ignore[misc, valid-type]  # triton is untyped
    """A kernel whose specializations come from `obtain`.

    Only compiling differs: `run` and everything on the path of a warm launch is JITFunction's. As a device function
    called from another kernel it is the function it was made from.
    """

    def __init__(self, plain: Any, options: Options, plan: str, obtain: Obtain, load: Load) -> None:
        super().__init__(
            plain.fn,
            version=plain.version,
            do_not_specialize=plain.do_not_specialize,
            do_not_specialize_on_alignment=plain.do_not_specialize_on_alignment,
            debug=plain.debug,
            noinline=plain.noinline,
            repr=plain._repr,
            launch_metadata=plain.launch_metadata,
        )
        self._src = plain._src  # a test or a tool may have changed it
        self.pre_run_hooks = list(plain.pre_run_hooks)
        self.plain = plain
        self.wspec_options = options
        self.wspec_plan = plan
        self._obtain, self._load = obtain, load
        self.wspec_say: Callable[[Remark], None] = lambda remark: None
        self.wspec_checker: Checker | None = None  # of what Triton specializes by itself; None: nobody looks at it
        if options.enabled:
            digest.hash_ahead()
            inductor.know(self)

    @property
    def wspec_digest(self) -> str:
        """Of wspec, its options and the plan: what its part of a launch depends on beside the source."""
        return cache.function_digest(self.wspec_options, self.wspec_plan)

    @property
    def wspec_place(self) -> FileLoc:
        """The line of the kernel's `def`."""
        return place_of(self)

    @property
    def cache_key(self) -> str:
        """The function's own key and ours: Triton's caches, the autotuner's among them, must tell the two apart."""
        if VERSION is None:
            return str(super().cache_key)
        return f"{super().cache_key}-{self.wspec_digest}"

    def create_binder(self) -> Any:
        """Triton's, which also names the function that compiles: ours, where the version is known."""
        caches = super().create_binder()
        if VERSION is not None:
            self.compile = self._compile
        return caches

    def _compile(self, src: Any, target: Any, options: Mapping[str, Any], _env_vars: Any = None) -> Any:
        """What JITFunction calls in place of `triton.compile`."""
        backend_options = triton.compiler.make_backend(target).parse_options(dict(options))
        source = KernelSource(src, backend_options, target)
        result, group = self._obtain(source)
        return self._load(source, result, group)

    def __repr__(self) -> str:
        return f"wspec.compile({super().__repr__()})"


def load_plain(source: KernelSource) -> Any:
    """What Triton makes of the kernel as it was, with a launch that costs less."""
    from wspec.bridge.sass.miscompiled import of_plain

    kernel, fn = compile_plain(source), source.ast.fn
    found = LaunchableKernel(kernel.src, kernel.metadata_group)
    if isinstance(fn, WspecFunction):
        wrong = of_plain(source.name, place_of(fn), kernel.asm["ptx"], kernel.asm["cubin"])
        if wrong is not None:
            found.is_wrong = True
            fn.wspec_say(wrong)
    return found


def compile_plain(source: KernelSource) -> Any:
    """Triton's own compilation of the function as it was, from the same cache entry as without wspec.

    Where Triton fails to specialize a loop that asks for it, or does so wrongly, the function without that request.
    """
    ast = source.ast
    ours = isinstance(ast.fn, WspecFunction)
    fn = ast.fn.plain if ours else ast.fn

    def compiled(kind: type[ASTSource]) -> Any:
        made = kind(fn, ast.signature, ast.constants, ast.attrs)
        with printed.once(source):
            return triton.compile(made, target=source.target, options=source.options.__dict__)

    checker, error = ast.fn.wspec_checker if ours else None, ""
    try:
        found = compiled(ASTSource)
        error = error_in(found.asm["ttgir"], checker) if checker is not None else ""
        if not error:
            return found
    except RuntimeError:
        if not asks(source):
            raise
    found = compiled(WithoutRequest)
    if ours:
        ast.fn.wspec_say(failed(source.name, place_of(fn), error))
    return found


class LaunchableKernel(CompiledKernel):  # type: ignore[misc]  # triton is untyped
    """A CompiledKernel that brings an allocator along when the kernel builds descriptors on the device.

    Triton keeps the allocator in a context variable, so one set while compiling is not there in another thread.
    A kernel whose blocks wait for the kernel before it (ptx/programmatic_launch.py) is launched while that one still
    runs, where its blocks come to lie evenly on the SMs all the same (`lies_evenly`).
    """

    is_wrong = False  # is it known that ptxas has miscompiled it?

    def __init__(self, src: Any, group: Group, blocks_per_sm: int = 1) -> None:
        super().__init__(src, dict(group), "")
        self.hash = self.metadata.hash
        options = getattr(src.fn, "wspec_options", None)
        self.early = options is not None and options.programmatic_launch is not False and WAIT in self.asm["ptx"]
        self.blocks_per_sm = blocks_per_sm

    def _init_handles(self) -> None:
        first = self.module is None
        super()._init_handles()
        if not first:
            return
        launcher: Any = self.run
        asked = bool(getattr(launcher, "launch_pdl", False))  # by the launch's own option
        found = starts(launcher, self)
        self._run: Any = found.early if self.early or asked else found.behind
        self._behind: Any = found.behind
        self._starts_early: Callable[[int], bool] = lambda blocks: self.early or asked
        if self.early and self.blocks_per_sm > 1:
            self._starts_early = _evenness(self.blocks_per_sm)
            self._run = _early_where_even(found, self._starts_early)
        if found.block is not None:
            found.block.starts_early = self._starts_early
        if self.metadata.global_scratch_size:
            self._wrap(_with_allocator)

    def _wrap(self, around: Callable[[Run], Run]) -> None:
        """Put something around what launches: `_run`, and `_behind`, which starts when all before it is over."""
        self._run, self._behind = around(self._run), around(self._behind)

    def launch_metadata(self, grid: Any, stream: int, *args: Any) -> Any:
        """What hooks are told of a launch; nothing where there are none."""
        return super().launch_metadata(grid, stream, *args) if is_hooked() else None


def around(kernel: Any, wrap: Callable[[Run], Run]) -> Any:
    """The kernel, launched by what `wrap` makes, when it is loaded, of what launches it."""
    kind = type(kernel)

    class Wrapped(kind):  # type: ignore[misc, valid-type]  # whichever it is
        def _init_handles(self) -> None:
            first = self.module is None
            super()._init_handles()
            if first:
                self._run: Any = wrap(self._run)

    kernel.__class__ = Wrapped
    return kernel


def is_hooked() -> bool:
    """Does somebody want to hear of launches?"""
    runtime = knobs.runtime
    return has_hooks(runtime.launch_enter_hook) or has_hooks(runtime.launch_exit_hook)


def _early_where_even(found: Starts, lies_evenly: Callable[[int], bool]) -> Run:
    """Launches early where so many blocks come to lie evenly."""
    early, behind = found.early, found.behind

    def launch(grid_x: int, grid_y: int, grid_z: int, *args: Any) -> None:
        (early if lies_evenly(grid_x * grid_y * grid_z) else behind)(grid_x, grid_y, grid_z, *args)

    return launch


def _evenness(blocks_per_sm: int) -> Callable[[int], bool]:
    """`lies_evenly` on the current device."""
    sms = multiprocessors(triton.runtime.driver.active.get_current_device())
    return lambda blocks: lies_evenly(blocks, sms, blocks_per_sm)


@functools.cache
def multiprocessors(device: int) -> int:
    """SMs of the device."""
    found: dict[str, int] = triton.runtime.driver.active.utils.get_device_properties(device)
    return found["multiprocessor_count"]


def lies_evenly(blocks: int, sms: int, blocks_per_sm: int) -> bool:
    """Do blocks that start while the kernel before them ends come to lie on the SMs as if these were empty?

    They go where there is room first. Where an SM can hold more of them than it would get, those that are rid of the
    kernel before soonest get too many: 256 blocks with room for three on each of 132 SMs took 1.4 times as long
    (docs/chains.md).
    """
    return blocks <= sms or -(-blocks // sms) >= blocks_per_sm


def _with_allocator(launch: Run) -> Run:
    def run(*args: Any) -> None:
        if _allocation._allocator.get() is _allocation._NULL_ALLOCATOR:
            triton.set_allocator(torch_memory)
        launch(*args)

    return run


def host_descriptor(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """The whole of a tensor, to be moved in blocks of that shape."""
    return TensorDescriptor.from_tensor(tensor, block)


# -------------------------------------------------------------------------------- autotune and heuristics


def is_wrapper(kernel: Any) -> bool:
    """Whether `kernel` is an Autotuner or Heuristics around another kernel."""
    return isinstance(kernel, (Autotuner, Heuristics))


def is_autotuner(kernel: Any) -> bool:
    """Whether `kernel` is an Autotuner."""
    return isinstance(kernel, Autotuner)


def replace_innermost(kernel: Any, make: Callable[[Any], Any], copy: Callable[[Any], Any]) -> Any:
    """`make` of a JITFunction; of an Autotuner or Heuristics a `copy` with the JITFunction inside replaced.

    A JITFunction that is ours already is first taken back to the one it was made from. The copy of an Autotuner
    starts with no timings: the best configuration of the plain kernel need not be ours.
    """
    if not is_wrapper(kernel):
        return make(kernel.plain if isinstance(kernel, WspecFunction) else kernel)
    new = copy(kernel)
    new.fn = replace_innermost(kernel.fn, make, copy)
    if isinstance(new, Autotuner):
        new.cache = {}
        new.__dict__.pop("best_config", None)
    return new


def innermost(kernel: Any) -> Any:
    """The JITFunction inside."""
    while is_wrapper(kernel):
        kernel = kernel.fn
    return kernel


def fill_in(kernel: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with what the autotuners and heuristics around a kernel would add to them.

    An Autotuner adds the configuration it found best, or its first one before it ran; what `kwargs` says wins.
    """
    filled = dict(kwargs)
    while is_wrapper(kernel):
        if isinstance(kernel, Autotuner):
            config = getattr(kernel, "best_config", kernel.configs[0])
            args, filled = with_configuration(kernel, config, args, filled)
        else:
            filled = _apply_heuristics(kernel, args, filled)
        kernel = kernel.fn
    return args, filled


def with_configuration(
    autotuner: Any, config: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with what a configuration adds to them; what `kwargs` says wins."""
    filled = {**config.all_kwargs(), **kwargs}
    if config.pre_hook is None:
        return args, filled
    return _apply_hook(config.pre_hook, autotuner.arg_names, args, filled)


def _apply_heuristics(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    for name, heuristic in kernel.values.items():
        if name not in kwargs:
            named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
            try:
                kwargs = {**kwargs, name: heuristic(named)}
            except Exception as error:  # the user's code, perhaps given the text of a type for a value
                raise bad_input(f"the heuristic for {name!r} failed: {error}", f"give {name} a value") from error
    return kwargs


def _apply_hook(
    hook: Callable[[dict[str, Any]], None], names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments after a configuration's pre-hook, which sets the blocks of descriptors but may also zero tensors.

    It sees copies of the descriptors, which are returned, and tensors without storage: nothing of the user's changes.
    """
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    seen = {name: _stand_in(value) for name, value in named.items()}
    hook(seen)
    after = {name: seen[name] if isinstance(value, TensorDescriptor) else value for name, value in named.items()}
    return tuple(after[name] for name, _ in zip(names, args, strict=False)), {name: after[name] for name in kwargs}


def _stand_in(value: Any) -> Any:
    if isinstance(value, TensorDescriptor):
        return copy.copy(value)
    return torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) else value


def require_jit(kernel: Any) -> None:
    """Raises WspecError for what is not a Triton kernel."""
    if not isinstance(innermost(kernel), JITFunction):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise bad_input(f"{name} is not a Triton kernel", "put @wspec.compile over @triton.jit")


def current_target() -> Any:
    """The target of the current GPU; Hopper when there is none, so that everything but launching works anywhere."""
    if not torch.cuda.is_available():
        return HOPPER
    return triton.runtime.driver.active.get_current_target()


def is_gluon(kernel: Any) -> bool:
    """Is the kernel written in Gluon, whose layouts, barriers and partitions are its author's?"""
    inner = innermost(kernel)
    return isinstance(inner, JITFunction) and bool(inner.is_gluon())


def place_of(kernel: Any) -> FileLoc:
    """The line of a kernel's `def`."""
    return line_of(innermost(kernel))


def is_interpreted(kernel: Any) -> bool:
    """Whether TRITON_INTERPRET=1 made the kernel an interpreted function."""
    return bool(knobs.runtime.interpret) and not isinstance(innermost(kernel), JITFunction)
