! SPDX-License-Identifier: Apache-2.0
! Each rank but the first waits in a call of MPI for messages that do not come: blocked CALL..., the
! first in a barrier.
program blocked
  use, intrinsic :: iso_c_binding, only: c_int
  use mpi
  implicit none
  interface
    integer(c_int) function usleep(microseconds) bind(c)
      import c_int
      integer(c_int), value :: microseconds
    end function usleep
  end interface
  integer, parameter :: most = 1048576  ! of a message that MPI does not keep for its receiver
  integer :: rank, rows, error, message, position, positions(2), requests(2), i
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2), sizes(1)
  integer, allocatable :: buffer(:)
  logical :: periods(1)
  character(len=30) :: name

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_dup(MPI_COMM_WORLD, rows, error)
  call MPI_Comm_set_name(rows, 'grid rows', error)
  call MPI_Barrier(rows, error)
  allocate (buffer(most))
  buffer = 0
  sizes = 1
  periods = .true.
  name = ''
  if (rank > 0) then
    call get_command_argument(rank, name)
    i = usleep(500000)  ! the first is the one whose time is up
    if (name(:8) == 'MPI_Wait') then
      do i = 1, 2
        call MPI_Irecv(buffer(i), 1, MPI_INTEGER, 0, i, rows, requests(i), error)
      end do
    end if
  end if
  select case (name)
  case ('')
    call MPI_Barrier(MPI_COMM_WORLD, error)
  case ('MPI_Send')
    call MPI_Send(buffer, most, MPI_INTEGER, 0, 7, rows, error)
  case ('MPI_Ssend')
    call MPI_Ssend(buffer, 1, MPI_INTEGER, 0, 7, rows, error)
  case ('MPI_Recv')
    call MPI_Recv(buffer, 1, MPI_INTEGER, 0, 7, rows, status, error)
  case ('MPI_Sendrecv')
    call MPI_Sendrecv(buffer(1), 1, MPI_INTEGER, 0, 7, buffer(2), 1, MPI_INTEGER, 0, 8, rows, &
                      status, error)
  case ('MPI_Sendrecv_replace')
    call MPI_Sendrecv_replace(buffer, 1, MPI_INTEGER, 0, 7, 0, 8, rows, status, error)
  case ('MPI_Probe')
    call MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, rows, status, error)
  case ('MPI_Mprobe')
    call MPI_Mprobe(0, 7, rows, message, status, error)
  case ('MPI_Comm_dup')
    call MPI_Comm_dup(rows, i, error)
  case ('MPI_Comm_create')
    call MPI_Comm_group(rows, position, error)
    call MPI_Comm_create(rows, position, i, error)
  case ('MPI_Comm_split')
    call MPI_Comm_split(rows, 0, 0, i, error)
  case ('MPI_Comm_split_type')
    call MPI_Comm_split_type(rows, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, i, error)
  case ('MPI_Cart_create')
    call MPI_Cart_create(rows, 1, sizes, periods, .false., i, error)
  case ('MPI_Wait')
    call MPI_Wait(requests(1), status, error)
  case ('MPI_Waitall')
    call MPI_Waitall(2, requests, statuses, error)
  case ('MPI_Waitany')
    call MPI_Waitany(2, requests, position, status, error)
  case ('MPI_Waitsome')
    call MPI_Waitsome(2, requests, i, positions, statuses, error)
  end select
  call MPI_Finalize(error)
end program blocked
