! SPDX-License-Identifier: Apache-2.0
! The last rank goes wrong, in a program that calls MPI from Fortran: fault NAME.
program fault
  use, intrinsic :: iso_c_binding, only: c_int
  use mpi
  implicit none
  interface
    integer(c_int) function raise(signal) bind(c)
      import c_int
      integer(c_int), value :: signal
    end function raise
    integer(c_int) function sleep(seconds) bind(c)
      import c_int
      integer(c_int), value :: seconds
    end function sleep
  end interface
  integer(c_int), parameter :: sigkill = 9, sigstop = 19
  integer :: rank, ranks, rows, error, value, sums(2), ignored
  logical :: is_last
  character(len=20) :: name

  call get_command_argument(1, name)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  is_last = rank == ranks - 1
  call MPI_Comm_split(MPI_COMM_WORLD, 0, rank, rows, error)
  call MPI_Comm_set_name(rows, 'grid rows', error)
  call MPI_Barrier(rows, error)
  value = rank
  sums = 0
  if (is_last) then
    select case (name)
    case ('absent')
      ignored = sleep(60)
    case ('killed')
      ignored = raise(sigkill)
    case ('stopped')
      ignored = raise(sigstop)
    case ('finalizes')
      call MPI_Finalize(error)
      stop
    end select
  end if
  select case (name)
  case ('counts')
    call MPI_Allreduce(MPI_IN_PLACE, sums, merge(1, 2, is_last), MPI_INTEGER, MPI_SUM, rows, error)
  case ('roots')
    call MPI_Bcast(value, 1, MPI_INTEGER, merge(1, 0, is_last), rows, error)
  case ('calls')
    if (is_last) then
      call MPI_Barrier(rows, error)
    else
      call MPI_Bcast(value, 1, MPI_INTEGER, 0, rows, error)
    end if
  case default
    call MPI_Allreduce(value, sums, 1, MPI_INTEGER, MPI_SUM, rows, error)
  end select
  call MPI_Finalize(error)
end program fault
