# SPDX-License-Identifier: Apache-2.0
"""A process group of torch.distributed whose collectives are a tutti.Communicator's.

It is written in Python against torch's public base class, so that one package serves the versions
of torch. An all_reduce with async_op=True takes place in wait(), or before the next collective, as
the call that other ranks make without async_op; between nodes a large one goes on while the program
computes. Every other collective has taken place when it returns, and its Work is complete. isend
and irecv take place in wait(), in an order that is the same on all ranks.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterator, NoReturn

import torch
import torch.distributed as dist

from .. import Communicator, InvalidArgumentError, MismatchError
from .._core import _Reductions
from ._barrier import MonitoredBarrier
from ._devices import backends_of, divide_by_device, group_elsewhere
from ._messages import Message, Messages
from ._work import (Calls, Deferred, Done, Reduction, carry_out_beside, carry_out_deferred,
                    deferred)

if TYPE_CHECKING:
    from .._core import _Operation

_Op = dist.ReduceOp.RedOpType
_NAMES: dict[Any, _Operation] = {_Op.SUM: "sum", _Op.AVG: "avg", _Op.PRODUCT: "prod",
                                 _Op.MIN: "min", _Op.MAX: "max"}
_NAMES_OF_BOOL: dict[Any, _Operation] = {_Op.MIN: "min", _Op.MAX: "max", _Op.BAND: "min",
                                         _Op.BOR: "max", _Op.PRODUCT: "min",
                                         _Op.SUM: "max"}  # a sum that is not 0
_BITWISE: dict[Any, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    _Op.BAND: torch.bitwise_and, _Op.BOR: torch.bitwise_or, _Op.BXOR: torch.bitwise_xor}
_AS_THEY_ARE = {torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.int8,
                torch.float16, torch.bfloat16}
_TELLS_WHO_WAITS = hasattr(dist.AllreduceOptions, "asyncOp")
_GOES_ON_FROM = 1 << 16  # bytes of an all_reduce between nodes that is worth a message more


def _refuse(text: str) -> NoReturn:
    raise InvalidArgumentError(text)


def _needs_bits(kind: Any, dtype: torch.dtype) -> bool:
    """True of a bitwise operation that no reduction of the library has for this dtype."""
    if dtype is torch.bool:
        return kind not in _NAMES_OF_BOOL
    return not dtype.is_floating_point  # torch itself refuses complex ones


def _operation(call: str, op: Any, dtype: torch.dtype) -> _Operation:
    kind = getattr(op, "op", op)
    name = (_NAMES_OF_BOOL if dtype is torch.bool else _NAMES).get(kind)
    if name is None:
        _refuse(f"{call}: expected one of SUM, AVG, PRODUCT, MIN, MAX (of bool: SUM, MIN, MAX, "
                f"PRODUCT, BAND, BOR; all_reduce of integers: also BAND, BOR, BXOR); got {kind} of "
                f"{dtype}")
    return name


def _require_cpu(call: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        _refuse(f"{call}: expected a tensor in the host's memory; got one on {tensor.device}; "
                "take tensor.cpu(), or init_process_group(\"cpu:tutti,cuda:nccl\")")


def _elements(call: str, tensor: torch.Tensor) -> Any:
    """Memory to reduce: an array whose elements the library adds. A tensor that is lent by DLPack,
    unlike one that NumPy has seen, may be resized later."""
    if tensor.layout is not torch.strided:
        _refuse(f"{call}: expected a dense tensor; got one of {tensor.layout}; use to_dense()")
    _require_cpu(call, tensor)
    if tensor.dtype is torch.bool:
        return tensor.detach().view(torch.uint8)
    if tensor.dtype not in _AS_THEY_ARE:
        _refuse(f"{call}: expected elements of float16, bfloat16, float32, float64, int8, uint8, "
                f"int32, int64 or bool; got {tensor.dtype}; convert it with to()")
    return tensor.detach()


def _lies_plain(tensor: torch.Tensor) -> bool:
    """True if the tensor's memory has its elements as they are, one after the other."""
    return (tensor.layout is torch.strided and tensor.is_cpu and tensor.is_contiguous()
            and not tensor.is_neg() and not tensor.is_conj())


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy whose memory has its elements as they are."""
    if tensor.layout is not torch.strided or _lies_plain(tensor):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


@contextlib.contextmanager
def _written(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Memory that the library writes: the tensor's own, or that of a copy, which comes back."""
    plain = _plain(tensor)
    yield plain
    if plain is not tensor:
        with torch.no_grad():
            tensor.copy_(plain)


def _data(call: str, tensor: torch.Tensor) -> Any:
    """Memory to move: elements of any dtype, as bytes where the library does not know it."""
    if (tensor.dtype in _AS_THEY_ARE or tensor.layout is not torch.strided
            or tensor.device.type != "cpu"):
        return _elements(call, tensor)
    return tensor.detach().reshape(-1).view(torch.uint8)


def _dense(call: str, tensor: torch.Tensor, may_copy: bool) -> torch.Tensor:
    _require_cpu(call, tensor)
    if tensor.layout is not torch.strided or not (may_copy or _lies_plain(tensor)):
        _refuse(f"{call}: expected a dense, contiguous tensor; got one with gaps, in another "
                f"order, or of layout {tensor.layout}")
    return _plain(tensor)


def _one(call: str, tensors: Any) -> Any:
    if len(tensors) != 1:
        _refuse(f"{call}: expected one tensor per rank; got {len(tensors)}")
    return tensors[0]


def _apart(output: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The input, in memory of its own where it is a part of the output."""
    same = output.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
    return value.clone() if same else _plain(value)


class ProcessGroup(dist.ProcessGroup):
    """The ranks of one group."""

    supports_splitting = False  # dist.split_group says that it is not there; new_group is

    def __init__(self, ranks: Communicator, store: Any):
        super().__init__(ranks.rank, ranks.size)
        self.communicator = ranks
        self._calls = Calls()
        self._monitored = MonitoredBarrier(store, ranks.rank, ranks.size)
        self._messages = Messages(ranks, self._calls,
                                  lambda tensor: _data("send and recv", tensor))
        self._lock = threading.RLock()
        self._is_spread = ranks.num_nodes > 1
        most_bytes = _GOES_ON_FROM - 1 if self._is_spread else sys.maxsize
        self._reductions = _Reductions(ranks, torch.Tensor, list(_NAMES.items()), most_bytes)
        self._name = self._description = ""
        self.elsewhere: dict[str, Any] = {}  # groups of other backends, by device
        self._done = Done([])  # whoever called is told no more than that

    def getBackendName(self) -> str:  # the names here are torch's own
        return "tutti"

    def name(self) -> str:
        return "tutti"

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        return self

    # torch's own class keeps these three with a backend that it has made.

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in backends_of(self)]

    def _set_group_name(self, name: str) -> None:
        self._name = name

    @property
    def group_name(self) -> str:
        return self._name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    @property
    def group_desc(self) -> str:
        return self._description

    def __repr__(self) -> str:
        return f"<tutti.torch.ProcessGroup over {self.communicator!r}>"

    def shutdown(self) -> None:
        """Leaves the group. Local."""
        carry_out_deferred(self._calls)
        self.communicator.close()

    abort = shutdown

    # --- reductions ------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        # Most calls end here; what else they can be is asked of the others.
        if _TELLS_WHO_WAITS and opts is not None and not opts.asyncOp:
            if deferred:
                carry_out_deferred(self._calls)
            if self._messages.has_begun:
                self._messages.before_collective()
            with self._lock:
                if self._reductions.allreduce(tensors, opts):
                    return self._done
        opts = dist.AllreduceOptions() if opts is None else opts
        tensor = _one("all_reduce", tensors)
        if not tensor.is_cpu or tensor.layout is not torch.strided:
            other = group_elsewhere(self, tensor)
            if other is not None:
                return other.allreduce(tensors, opts)
            if tensor.layout is torch.sparse_coo:
                return self._allreduce_sparse(tensor, opts.reduceOp)
        kind = getattr(opts.reduceOp, "op", opts.reduceOp)
        if kind in _BITWISE and tensor.is_cpu and _needs_bits(kind, tensor.dtype):
            work: Any = Deferred(self._calls, lambda: self._allreduce_bits(tensor, kind), tensors,
                                 [])
        else:
            work = self._allreduce_later(tensor, tensors,
                                         _operation("all_reduce", kind, tensor.dtype))
        if getattr(opts, "asyncOp", True):
            return work
        work.wait()
        return self._done

    def _goes_on(self, tensor: torch.Tensor) -> bool:
        """True if the call goes on while the program computes: alike on all ranks, whether or
        not they wait."""
        return self._is_spread and tensor.numel() * tensor.element_size() >= _GOES_ON_FROM

    def _allreduce_later(self, tensor: torch.Tensor, tensors: Any, op: _Operation) -> Any:
        """The call that ranks without async_op make, when somebody waits for it."""
        plain = _plain(tensor)
        array = _elements("all_reduce", plain)
        copies = [] if plain is tensor else [(tensor, plain)]
        if self._goes_on(tensor):
            with self._turn():
                pending = self.communicator.allreduce_async(array, op=op)
            return Reduction([pending], tensors, True, copies)

        def carry_out() -> None:
            self._messages.before_collective()
            with self._lock:
                self.communicator.allreduce(array, op=op)
        return Deferred(self._calls, carry_out, tensors, copies)

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Calls that were put off come first."""
        carry_out_deferred(self._calls)
        self._messages.before_collective()
        with self._lock:
            yield

    def _allreduce_bits(self, tensor: torch.Tensor, kind: Any) -> None:
        """Every rank gets the elements of all, and combines their bits."""
        self._messages.before_collective()
        own = _plain(tensor.detach()).reshape(-1)
        of_all = own.new_empty((self.size(), own.numel()))
        with self._lock:
            self.communicator.allgather(_data("all_reduce", own),
                                        _data("all_reduce", of_all.reshape(-1)))
        tensor.detach().copy_(functools.reduce(_BITWISE[kind], of_all).view(tensor.shape))

    def _allreduce_sparse(self, tensor: torch.Tensor, op: Any) -> Any:
        """Every rank gets the indices and values of all, and adds them in the order of ranks."""
        kind = getattr(op, "op", op)
        if kind not in (_Op.SUM, _Op.AVG):
            _refuse(f"all_reduce: expected SUM or AVG of a sparse tensor; got {kind}")
        own = tensor.detach().coalesce()
        counts = self._counts_of_sparse(own)
        indices = [torch.empty(count, own.sparse_dim(), dtype=torch.int64) for count in counts]
        values = [own.values().new_empty((count, *own.values().shape[1:])) for count in counts]
        self.allgather([indices], [own.indices().t().contiguous()])
        self.allgather([values], [own.values()])
        total = torch.sparse_coo_tensor(torch.cat(indices).t(), torch.cat(values), own.shape,
                                        check_invariants=False)
        total = total.coalesce()
        with torch.no_grad():
            tensor.copy_(total / self.size() if kind == _Op.AVG else total)
        return Done([tensor])

    def _counts_of_sparse(self, own: torch.Tensor) -> list[int]:
        """How many elements each rank has. Raises on all ranks if their shapes differ."""
        told = torch.tensor([own._nnz(), own.sparse_dim(), *own.shape])
        of_all = told.new_zeros(self.size(), len(told))
        self._allgather_base(of_all, told)
        kinds = of_all[:, 1:].tolist()
        for rank, kind in enumerate(kinds):
            if kind != kinds[0]:
                raise MismatchError(
                    f"all_reduce: expected sparse tensors of one shape; rank 0 has "
                    f"{tuple(kinds[0][1:])} with {kinds[0][0]} sparse dimensions, and rank {rank} "
                    f"{tuple(kind[1:])} with {kind[0]}; nothing was changed")
        return [int(count) for count in of_all[:, 0]]

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        opts = dist.AllreduceCoalescedOptions() if opts is None else opts
        plain = [_plain(tensor) for tensor in tensors]
        with self._turn():
            pending = [self.communicator.allreduce_async(
                _elements("all_reduce", tensor),
                op=_operation("all_reduce", opts.reduceOp, tensor.dtype)) for tensor in plain]
        return Reduction(pending, tensors, self._is_spread,
                         [pair for pair in zip(tensors, plain) if pair[0] is not pair[1]])

    def reduce(self, tensors: Any, opts: Any = None) -> Any:
        opts = dist.ReduceOptions() if opts is None else opts
        tensor = _one("reduce", tensors)
        op = _operation("reduce", opts.reduceOp, tensor.dtype)
        with _written(tensor) as plain, self._turn():
            array = _elements("reduce", plain)
            out = array if self.rank() == opts.rootRank else None
            self.communicator.reduce(array, out, opts.rootRank, op)
        return Done(tensors)

    def _reduce_scatter_base(self, output: Any, value: Any, opts: Any = None) -> Any:
        opts = dist.ReduceScatterOptions() if opts is None else opts
        op = _operation("reduce_scatter", opts.reduceOp, output.dtype)
        source = _apart(output, value)
        with _written(output) as out, self._turn():
            self.communicator.reduce_scatter(_elements("reduce_scatter", source),
                                             _elements("reduce_scatter", out), op)
        return Done([output])

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = dist.ReduceScatterOptions() if opts is None else opts
        output, parts = _one("reduce_scatter", outputs), _one("reduce_scatter", inputs)
        op = _operation("reduce_scatter", opts.reduceOp, output.dtype)
        source = _plain(torch.cat([part.reshape(-1) for part in parts]))
        counts = [part.numel() for part in parts]
        with _written(output) as out, self._turn():
            self.communicator.reduce_scatter(_elements("reduce_scatter", source),
                                             _elements("reduce_scatter", out), op, counts)
        return Done([output])

    # --- copies ----------------------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        opts = dist.BroadcastOptions() if opts is None else opts
        with _written(_one("broadcast", tensors)) as plain, self._turn():
            self.communicator.broadcast(_data("broadcast", plain), opts.rootRank)
        return Done(tensors)

    def _allgather_base(self, output: Any, value: Any, opts: Any = None) -> Any:
        source = _apart(output, value)
        with _written(output) as out, self._turn():
            self.communicator.allgather(_data("all_gather", source), _data("all_gather", out))
        return Done([output])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        parts, value = _one("all_gather", outputs), _one("all_gather", inputs)
        flat = torch.empty(sum(part.numel() for part in parts), dtype=value.dtype)
        unit = 1 if value.dtype in _AS_THEY_ARE else value.element_size()
        counts = [part.numel() * unit for part in parts]
        with self._turn():
            self.communicator.allgatherv(_data("all_gather", _plain(value)),
                                         _data("all_gather", flat), counts)
        self._spread_out(flat, parts)
        return Done(parts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = dist.GatherOptions() if opts is None else opts
        value = _plain(_one("gather", inputs))
        parts = _one("gather", outputs) if self.rank() == opts.rootRank else []
        flat = torch.empty(value.numel() * len(parts), dtype=value.dtype)
        with self._turn():
            self.communicator.gather(_data("gather", value),
                                     _data("gather", flat) if parts else None, opts.rootRank)
        self._spread_out(flat, parts)
        return Done(parts)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        opts = dist.ScatterOptions() if opts is None else opts
        output = _one("scatter", outputs)
        source = None
        if self.rank() == opts.rootRank:
            source = torch.cat([part.reshape(-1) for part in _one("scatter", inputs)])
        with _written(output) as out, self._turn():
            self.communicator.scatter(None if source is None else _data("scatter", _plain(source)),
                                      _data("scatter", out), opts.rootRank)
        return Done([output])

    def alltoall_base(self, output: Any, value: Any, output_sizes: Any, input_sizes: Any,
                      opts: Any = None) -> Any:
        """Sizes are of the first dimension, and empty for equal blocks."""
        source = _plain(value)
        with _written(output) as out, self._turn():
            self.communicator.alltoallv(
                _data("all_to_all", source), self._counts(source, input_sizes),
                _data("all_to_all", out), self._counts(out, output_sizes))
        return Done([output])

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        source = torch.cat([part.reshape(-1) for part in inputs])
        flat = torch.empty(sum(part.numel() for part in outputs), dtype=source.dtype)
        self.alltoall_base(flat, source, [part.numel() for part in outputs],
                           [part.numel() for part in inputs])
        self._spread_out(flat, outputs)
        return Done(outputs)

    def _counts(self, tensor: torch.Tensor, sizes: Any) -> list[int]:
        unit = 1 if tensor.dtype in _AS_THEY_ARE else tensor.element_size()
        if not sizes:
            if tensor.numel() % self.size() != 0:
                _refuse(f"all_to_all: expected {self.size()} equal blocks; got {tensor.numel()} "
                        "elements; give the sizes")
            return [tensor.numel() // self.size() * unit] * self.size()
        rows = tensor.shape[0] if tensor.dim() > 0 else 0
        if len(sizes) != self.size() or sum(sizes) != rows:
            _refuse(f"all_to_all: expected {self.size()} sizes that add up to the first dimension, "
                    f"{rows}; got {list(sizes)}")
        row = tensor.numel() // rows * unit if rows > 0 else 0
        return [size * row for size in sizes]

    @staticmethod
    def _spread_out(flat: torch.Tensor, parts: Any) -> None:
        with torch.no_grad():
            for part, block in zip(parts, torch.split(flat, [part.numel() for part in parts])):
                part.copy_(block.view(part.shape))

    def barrier(self, opts: Any = None) -> Any:
        with self._turn():
            self.communicator.barrier()
        return Done([])

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier with a timeout of its own; if ranks are missing, the group goes on."""
        carry_out_beside()
        self._monitored.meet(timeout, wait_all_ranks)

    # --- messages --------------------------------------------------------------------------------

    def send(self, tensors: Any, to_rank: int, tag: int = 0) -> Any:
        return self._message("send", tensors, to_rank, tag, True)

    def recv(self, tensors: Any, from_rank: int, tag: int = 0) -> Any:
        return self._message("recv", tensors, from_rank, tag, False)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        _refuse("recv: expected the rank to receive from (src); messages from any rank are not "
                "supported")

    def _message(self, call: str, tensors: Any, rank: int, tag: int, is_send: bool) -> Any:
        if not isinstance(tag, int) or not 0 <= tag < 1 << 63:
            _refuse(f"{call}: expected a tag from 0 to 2**63 - 1; got {tag!r}")
        carry_out_deferred(self._calls)
        return Message(self._messages, _dense(call, _one(call, tensors), is_send), rank, tag,
                       is_send)

    # --- as other versions of torch name them, and lists of tensors -------------------------------

    def _each(self, call: Callable[[Any, Any, Any], Any], outputs: Any, inputs: Any,
              opts: Any) -> Any:
        for output, value in zip(outputs, inputs):
            call(output, value, opts)
        return Done(list(outputs))

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """outputs: a list of tensors for each rank."""
        for index, value in enumerate(inputs):
            self.allgather([[of_rank[index] for of_rank in outputs]], [value])
        return Done([tensor for of_rank in outputs for tensor in of_rank])

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._each(self._allgather_base, outputs, inputs, opts)

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        return self._each(self._reduce_scatter_base, outputs, inputs, opts)

    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced


divide_by_device(ProcessGroup)
