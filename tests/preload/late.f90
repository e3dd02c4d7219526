! SPDX-License-Identifier: Apache-2.0
! A part of a program that is loaded after the first call of MPI: the sum of all ranks + 1, by MPI's
! messages, communicators and collectives in Fortran. Collective.
integer(c_int) function sum_of_ranks() bind(c)
  use, intrinsic :: iso_c_binding, only: c_int
  use mpi
  implicit none
  integer :: rank, ranks, twins, error, from, total, status(MPI_STATUS_SIZE)

  call MPI_Comm_dup(MPI_COMM_WORLD, twins, error)
  call MPI_Comm_rank(twins, rank, error)
  call MPI_Comm_size(twins, ranks, error)
  call MPI_Sendrecv(rank + 1, 1, MPI_INTEGER, modulo(rank + 1, ranks), 0, from, 1, MPI_INTEGER, &
                    modulo(rank - 1, ranks), 0, twins, status, error)
  call MPI_Allreduce(from, total, 1, MPI_INTEGER, MPI_SUM, twins, error)
  call MPI_Comm_free(twins, error)
  sum_of_ranks = total
end function sum_of_ranks
