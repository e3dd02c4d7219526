# SPDX-License-Identifier: Apache-2.0
"""Horovod's collectives, with its arguments. A handle is a number; synchronize() gives the result.

tensor: in the host's memory, contiguous. name: calls of one name belong together; calls without a
name belong together in their order. process_set: the ranks that make the call; a root is named by
its rank among all ranks.
"""

from __future__ import annotations

import itertools
import pickle
from typing import Any, Callable, Optional, Sequence

import torch

from ... import Communicator, UserCodeError
from ...torch._group import _data
from ._reduction import (
    Average,
    Compression,
    Reduction,
    Sum,
    kinds_of,
    operation,
    require_plain,
    require_reducible,
    start_allreduce,
)
from ._requests import Request
from ._sets import ProcessSet, global_process_set, rank, requests_of

_handles: dict[int, Request] = {}
_numbers = itertools.count(1)


def _begin(kind: str, name: Optional[str], process_set: ProcessSet, alike: tuple[Any, ...],
           own: tuple[Any, ...], start: Callable[[Communicator, list[Any]], Any]) -> Request:
    requests = requests_of(process_set)
    return requests.add(Request(requests.name_of(kind, name), (kind, *alike), own, start))


def _handle(request: Request) -> int:
    number = next(_numbers)
    _handles[number] = request
    return number


def poll(handle: int) -> bool:
    """True if the call has taken place, after which synchronize() does not wait. The first poll()
    of a handle is False; later ones wait until the other ranks wait, or poll, too."""
    request = _handles.get(handle)
    if request is None:
        raise ValueError(f"poll: expected a handle that nobody has waited for; got {handle}")
    assert request.requests is not None
    return request.is_done or request.requests.poll(request)


def synchronize(handle: int) -> Any:
    """Waits for the call, and returns its output; None for a handle that was waited for before.

    Raises HorovodInternalError where the ranks' calls do not fit together, on all of them.
    """
    request = _handles.pop(handle, None)
    if request is None:
        return None
    assert request.requests is not None
    return request.requests.wait(request)


class _WithGradient(torch.autograd.Function):
    """Runs call(tensors); `gradients` computes their gradients from those of the outputs."""

    @staticmethod
    def forward(ctx: Any, call: Any, gradients: Any, *tensors: torch.Tensor) -> Any:
        ctx.gradients = gradients
        return tuple(call([tensor.detach() for tensor in tensors]))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, None, *ctx.gradients([one.contiguous() for one in gradients])


def _differentiable(call: Any, gradients: Any, tensors: Sequence[torch.Tensor],
                    compression: Any = Compression.none) -> list[torch.Tensor]:
    sent, contexts = zip(*[compression.compress(tensor) for tensor in tensors])
    outputs = _WithGradient.apply(call, gradients, *sent)  # type: ignore[no-untyped-call]
    return [compression.decompress(*pair) for pair in zip(outputs, contexts)]


# --- allreduce -----------------------------------------------------------------------------------


def _begin_allreduce(tensors: list[torch.Tensor], outputs: list[torch.Tensor], result: Any,
                     name: Optional[str], reduction: Reduction, process_set: ProcessSet) -> int:
    require_reducible("allreduce", tensors)

    def start(ranks: Communicator, _: list[Any]) -> Callable[[], None]:
        return start_allreduce(ranks, reduction, tensors, outputs)
    request = _begin("allreduce", name, process_set, (*reduction.alike, kinds_of(tensors)), (),
                     start)
    request.result = result
    return _handle(request)


def allreduce_async(tensor: torch.Tensor, average: Optional[bool] = None,
                    name: Optional[str] = None, op: Optional[int] = None,
                    prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                    process_set: ProcessSet = global_process_set) -> int:
    output = torch.empty_like(tensor, requires_grad=False)
    reduction = Reduction(operation(op, average), prescale_factor, postscale_factor)
    return _begin_allreduce([tensor], [output], output, name, reduction, process_set)


def allreduce_async_(tensor: torch.Tensor, average: Optional[bool] = None,
                     name: Optional[str] = None, op: Optional[int] = None,
                     prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                     process_set: ProcessSet = global_process_set) -> int:
    reduction = Reduction(operation(op, average), prescale_factor, postscale_factor)
    return _begin_allreduce([tensor], [tensor], tensor, name, reduction, process_set)


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                            name: Optional[str] = None, op: Optional[int] = None,
                            prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                            process_set: ProcessSet = global_process_set) -> int:
    outputs = [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]
    reduction = Reduction(operation(op, average), prescale_factor, postscale_factor)
    return _begin_allreduce(list(tensors), outputs, outputs, name, reduction, process_set)


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                             name: Optional[str] = None, op: Optional[int] = None,
                             prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                             process_set: ProcessSet = global_process_set) -> int:
    reduction = Reduction(operation(op, average), prescale_factor, postscale_factor)
    return _begin_allreduce(list(tensors), list(tensors), tensors, name, reduction, process_set)


def allreduce_(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
               op: Optional[int] = None, prescale_factor: float = 1.0,
               postscale_factor: float = 1.0,
               process_set: ProcessSet = global_process_set) -> Any:
    return synchronize(allreduce_async_(tensor, average, name, op, prescale_factor,
                                        postscale_factor, process_set))


def grouped_allreduce_(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                       name: Optional[str] = None, op: Optional[int] = None,
                       prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                       process_set: ProcessSet = global_process_set) -> Any:
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor,
                                                postscale_factor, process_set))


def grouped_allreduce(tensors: Sequence[torch.Tensor], average: Optional[bool] = None,
                      name: Optional[str] = None, compression: Any = Compression.none,
                      op: Optional[int] = None, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """Reduces several tensors, whose gradients are reduced in the same way."""
    chosen = operation(op, average)

    def reduce(given: Sequence[torch.Tensor], name: Optional[str] = None) -> Any:
        return synchronize(grouped_allreduce_async(
            given, None, name, chosen, prescale_factor, postscale_factor, process_set))
    return _differentiable(lambda given: reduce(given, name), reduce, tensors, compression)


def allreduce(tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
              compression: Any = Compression.none, op: Optional[int] = None,
              prescale_factor: float = 1.0, postscale_factor: float = 1.0,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    return grouped_allreduce([tensor], average, name, compression, op, prescale_factor,
                             postscale_factor, process_set)[0]


def sparse_allreduce_async(tensor: torch.Tensor, name: Optional[str], op: int,
                           process_set: ProcessSet = global_process_set) -> Callable[[], Any]:
    """Returns a function to call in place of synchronize()."""
    indices = allgather_async(tensor._indices().t().contiguous(), f"{name}.indices", process_set)
    values = allgather_async(tensor._values(), f"{name}.values", process_set)
    chosen = operation(op)

    def wait() -> torch.Tensor:
        of_all, at = synchronize(values), synchronize(indices)
        if chosen == Average:
            of_all = of_all / process_set.size()
        return torch.sparse_coo_tensor(at.t(), of_all, tensor.shape, check_invariants=False)
    return wait


# --- allgather -----------------------------------------------------------------------------------


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.detach().reshape(-1).view(torch.uint8) if tensor.numel() > 0 else (
        torch.empty(0, dtype=torch.uint8))


def _begin_allgather(tensors: list[torch.Tensor], name: Optional[str],
                     process_set: ProcessSet) -> Request:
    require_plain("allgather", tensors)
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError("allgather: expected tensors with a first dimension; got a scalar")

    def start(ranks: Communicator, rows_of: list[Any]) -> None:
        request.result = []
        for index, tensor in enumerate(tensors):
            rows = [of_rank[index] for of_rank in rows_of]
            output = tensor.detach().new_empty((sum(rows), *tensor.shape[1:]))
            unit = tensor.shape[1:].numel() * tensor.element_size()
            ranks.allgatherv(_bytes(tensor), _bytes(output), [count * unit for count in rows])
            request.result.append(output)
    request = _begin("allgather", name, process_set, (kinds_of(tensors, 1),),
                     tuple(tensor.shape[0] for tensor in tensors), start)
    return request


def _only(request: Request) -> Request:
    """Makes the only output of a call its result."""
    several = request.start

    def start(ranks: Communicator, owns: list[Any]) -> None:
        several(ranks, owns)
        request.result = request.result[0]
    request.start = start
    return request


def allgather_async(tensor: torch.Tensor, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    return _handle(_only(_begin_allgather([tensor], name, process_set)))


def grouped_allgather_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                            process_set: ProcessSet = global_process_set) -> int:
    return _handle(_begin_allgather(list(tensors), name, process_set))


def grouped_allgather(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                      process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
    """Gathers several tensors. A tensor's gradient is this rank's rows of the ranks' mean."""
    def gradients(given: list[torch.Tensor]) -> list[torch.Tensor]:
        means = grouped_allreduce(given, op=Average, process_set=process_set)
        rows = torch.tensor([[tensor.shape[0] for tensor in tensors]])
        of_all = allgather(rows, process_set=process_set)
        before = of_all[:process_set.rank()].sum(0).tolist()
        return [mean.narrow(0, first, tensor.shape[0])
                for mean, first, tensor in zip(means, before, tensors)]
    return _differentiable(
        lambda given: synchronize(grouped_allgather_async(given, name, process_set)), gradients,
        tensors)


def allgather(tensor: torch.Tensor, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The tensors of all ranks, which may differ in the first dimension, one after the other."""
    return grouped_allgather([tensor], name, process_set)[0]


# --- broadcast, barrier, join --------------------------------------------------------------------


def _begin_broadcast(tensor: torch.Tensor, output: torch.Tensor, root_rank: int,
                     name: Optional[str], process_set: ProcessSet) -> int:
    require_plain("broadcast", [tensor])
    members = requests_of(process_set) and process_set.ranks or []
    if root_rank not in members:
        raise ValueError(f"broadcast: expected a root_rank of {process_set}; got {root_rank}")

    def start(ranks: Communicator, _: list[Any]) -> None:
        if ranks.rank == members.index(root_rank) and output is not tensor:
            with torch.no_grad():
                output.copy_(tensor)
        if output.numel() > 0:
            ranks.broadcast(_data("broadcast", output), members.index(root_rank))
    request = _begin("broadcast", name, process_set, (root_rank, kinds_of([tensor])), (), start)
    request.result = output
    return _handle(request)


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                    process_set: ProcessSet = global_process_set) -> int:
    output = torch.empty_like(tensor, requires_grad=False)
    return _begin_broadcast(tensor, output, root_rank, name, process_set)


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> int:
    return _begin_broadcast(tensor, tensor, root_rank, name, process_set)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
               process_set: ProcessSet = global_process_set) -> Any:
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
              process_set: ProcessSet = global_process_set) -> torch.Tensor:
    """The root's tensor. Its gradient is the ranks' mean on the root, and zero on the others."""
    def gradients(given: list[torch.Tensor]) -> list[torch.Tensor]:
        means = grouped_allreduce(given, op=Average, process_set=process_set)
        return means if rank() == root_rank else [torch.zeros_like(mean) for mean in means]
    return _differentiable(
        lambda given: [synchronize(broadcast_async(given[0], root_rank, name, process_set))],
        gradients, [tensor])[0]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    synchronize(_handle(_begin("barrier", None, process_set, (), (), lambda ranks, _: None)))


def join(device: int = -1) -> int:
    """Declares that this rank has no more data, and gives zeros to the allreduce calls of others
    until all ranks have joined. Returns the rank that joined last. Collective over all ranks."""
    return requests_of(global_process_set).join()


# --- alltoall ------------------------------------------------------------------------------------


def _splits(tensor: torch.Tensor, splits: Any, ranks: int) -> tuple[int, ...]:
    """The number of rows that go to each rank."""
    if tensor.dim() == 0:
        raise ValueError("alltoall: expected a tensor with a first dimension; got a scalar")
    rows = tensor.shape[0]
    if splits is None:
        if rows % ranks != 0:
            raise ValueError(f"alltoall: expected a first dimension that {ranks} ranks divide; got "
                             f"{rows}; give the splits")
        return (rows // ranks,) * ranks
    given = torch.as_tensor(splits)
    if given.dtype.is_floating_point or given.dtype is torch.bool:
        raise ValueError(f"alltoall: expected splits of 32-bit integers; got {given.dtype}")
    found = tuple(given.tolist())
    if len(found) != ranks or min(found) < 0 or sum(found) > rows:
        raise ValueError(f"alltoall: expected {ranks} splits that add up to {rows}, the first "
                         f"dimension; got {list(found)}")
    return found


def alltoall_async(tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> int:
    """Begins an alltoall. Its result is the tensor, and the number of rows from each rank."""
    require_plain("alltoall", [tensor])
    sent = _splits(tensor, splits, requests_of(process_set).ranks.size)

    def start(ranks: Communicator, splits_of: list[Any]) -> None:
        received = [of_rank[ranks.rank] for of_rank in splits_of]
        output = tensor.detach().new_empty((sum(received), *tensor.shape[1:]))
        unit = tensor.shape[1:].numel() * tensor.element_size()
        ranks.alltoallv(_bytes(tensor[:sum(sent)]), [rows * unit for rows in sent],
                        _bytes(output), [rows * unit for rows in received])
        request.result = (output, torch.tensor(received, dtype=torch.int32))
    request = _begin("alltoall", name, process_set, (kinds_of([tensor], 1),), sent, start)
    return _handle(request)


def alltoall(tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None,
             process_set: ProcessSet = global_process_set) -> Any:
    """Sends slices of the first dimension to the ranks, and returns those that they send; with
    splits, also the number of rows from each rank."""
    received: list[torch.Tensor] = []

    def call(given: list[torch.Tensor]) -> list[torch.Tensor]:
        output, rows = synchronize(alltoall_async(given[0], splits, name, process_set))
        received.append(rows)
        return [output]

    def gradients(given: list[torch.Tensor]) -> list[torch.Tensor]:
        return [synchronize(alltoall_async(given[0], received[0], None, process_set))[0]]
    output = _differentiable(call, gradients, [tensor])[0]
    return output if splits is None else (output, received[0])


# --- reducescatter -------------------------------------------------------------------------------


def _begin_reducescatter(tensors: list[torch.Tensor], name: Optional[str], reduction: Reduction,
                         process_set: ProcessSet) -> Request:
    require_reducible("reducescatter", tensors)
    if any(tensor.dim() == 0 for tensor in tensors):
        raise ValueError("reducescatter: expected tensors with a first dimension; got a scalar")

    def start(ranks: Communicator, _: list[Any]) -> None:
        request.result = [_reduce_scatter(ranks, reduction, tensor.detach()) for tensor in tensors]
    request = _begin("reducescatter", name, process_set, (*reduction.alike, kinds_of(tensors)), (),
                     start)
    return request


@torch.no_grad()
def _reduce_scatter(ranks: Communicator, reduction: Reduction,
                    tensor: torch.Tensor) -> torch.Tensor:
    """Reduces to this rank's rows. If ranks do not divide rows, the first ranks get one more."""
    each, more = divmod(tensor.shape[0], ranks.size)
    rows = [each + (of_rank < more) for of_rank in range(ranks.size)]
    row = tensor.shape[1:].numel()
    output = tensor.new_empty((rows[ranks.rank], *tensor.shape[1:]))
    ranks.reduce_scatter(reduction.sent(tensor), output, reduction.name(tensor.dtype),
                         [count * row for count in rows])
    reduction.complete(output, ranks.size)
    return output


def reducescatter_async(tensor: torch.Tensor, name: Optional[str] = None, op: int = Average,
                        process_set: ProcessSet = global_process_set,
                        prescale_factor: float = 1.0, postscale_factor: float = 1.0) -> int:
    reduction = Reduction(operation(op), prescale_factor, postscale_factor)
    return _handle(_only(_begin_reducescatter([tensor], name, reduction, process_set)))


def grouped_reducescatter_async(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                                op: int = Average,
                                process_set: ProcessSet = global_process_set,
                                prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0) -> int:
    reduction = Reduction(operation(op), prescale_factor, postscale_factor)
    return _handle(_begin_reducescatter(list(tensors), name, reduction, process_set))


def grouped_reducescatter(tensors: Sequence[torch.Tensor], name: Optional[str] = None,
                          compression: Any = Compression.none, op: int = Average,
                          process_set: ProcessSet = global_process_set,
                          prescale_factor: float = 1.0,
                          postscale_factor: float = 1.0) -> list[torch.Tensor]:
    def call(given: list[torch.Tensor]) -> Any:
        return synchronize(grouped_reducescatter_async(given, name, op, process_set,
                                                       prescale_factor, postscale_factor))

    def gradients(given: list[torch.Tensor]) -> list[torch.Tensor]:
        factor = prescale_factor * postscale_factor
        if op == Sum:
            factor *= process_set.size() or 1
        return grouped_allgather([one * factor for one in given], process_set=process_set)
    return _differentiable(call, gradients, tensors, compression)


def reducescatter(tensor: torch.Tensor, name: Optional[str] = None,
                  compression: Any = Compression.none, op: int = Average,
                  process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                  postscale_factor: float = 1.0) -> torch.Tensor:
    """This rank's rows of the result that allreduce would have."""
    return grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor,
                                 postscale_factor)[0]


# --- objects -------------------------------------------------------------------------------------


def _pickled(value: Any) -> torch.Tensor:
    """The byte 0 and the pickled object; or 1 and the reason why it cannot be pickled."""
    try:
        memory = b"\0" + pickle.dumps(value)
    except Exception as error:  # an object may raise anything
        memory = b"\1" + pickle.dumps(f"{type(error).__name__}: {error}")
    return torch.frombuffer(bytearray(memory), dtype=torch.uint8)


def _objects(call: str, tensor: torch.Tensor, name: Optional[str],
             process_set: ProcessSet) -> list[Any]:
    """Gathers pickled objects; returns those of the ranks that gave any bytes."""
    found: list[Any] = []

    def start(ranks: Communicator, rows_of: list[Any]) -> None:
        gather(ranks, rows_of)
        for rank_of, block in enumerate(request.result[0].split([one[0] for one in rows_of])):
            memory = block.numpy().tobytes()
            if memory[:1] == b"\1":
                raise UserCodeError(f"{call}: rank {rank_of} cannot pickle its object: "
                                    f"{pickle.loads(memory[1:])}")
            found.extend([pickle.loads(memory[1:])] if memory else [])
    request = _begin_allgather([tensor], name, process_set)
    gather, request.start = request.start, start
    synchronize(_handle(request))
    return found


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """The root's object, on every rank. It travels pickled."""
    if root_rank not in (requests_of(process_set) and process_set.ranks or []):
        raise ValueError(f"broadcast_object: expected a root_rank of {process_set}; got "
                         f"{root_rank}")
    is_root = rank() == root_rank
    sent = _pickled(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    found = _objects("broadcast_object", sent, None if name is None else f"{name}.object",
                     process_set)
    return obj if is_root else found[0]


def allgather_object(obj: Any, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> list[Any]:
    """The objects of all ranks, in the order of ranks. They travel pickled."""
    return _objects("allgather_object", _pickled(obj), None if name is None else f"{name}.object",
                    process_set)
