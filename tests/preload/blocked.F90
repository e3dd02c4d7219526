! SPDX-License-Identifier: Apache-2.0
! Each rank but the first waits in a call of MPI for the others: blocked CALL..., the first in a
! barrier.
program blocked
  use, intrinsic :: iso_c_binding, only: c_int
#ifdef F08
#define COMM type(MPI_Comm)
#define MESSAGE type(MPI_Message)
#define REQUEST type(MPI_Request)
#define STATUS type(MPI_Status)
#define GROUP type(MPI_Group)
#define WINDOW type(MPI_Win)
  use mpi_f08
#else
#define COMM integer
#define MESSAGE integer
#define REQUEST integer
#define STATUS integer, dimension(MPI_STATUS_SIZE)
#define GROUP integer
#define WINDOW integer
  use mpi
#endif
  implicit none
  interface
    integer(c_int) function usleep(microseconds) bind(c)
      import c_int
      integer(c_int), value :: microseconds
    end function usleep
  end interface
  integer, parameter :: most = 1048576  ! of a message that MPI does not keep for its receiver
  integer :: rank, ranks, error, position, positions(2), i
  integer(MPI_ADDRESS_KIND) :: bytes
  COMM :: rows, made
  GROUP :: all
  MESSAGE :: came
  REQUEST :: requests(2)
  STATUS :: is
#ifdef F08
  STATUS :: are(2)
#else
  integer :: are(MPI_STATUS_SIZE, 2)
#endif
  WINDOW :: window_of_all
  integer :: buffer(most), sizes(1)
  logical :: periods(1)
  character(len=30) :: name

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  sizes = ranks
  periods = .true.
  call MPI_Cart_create(MPI_COMM_WORLD, 1, sizes, periods, .false., rows, error)
  call MPI_Comm_set_name(rows, 'grid rows', error)
  call MPI_Barrier(rows, error)
  buffer = 0
  bytes = 4
  call MPI_Win_create(buffer, bytes, 4, MPI_INFO_NULL, rows, window_of_all, error)
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
    call MPI_Recv(buffer, 1, MPI_INTEGER, 0, 7, rows, is, error)
  case ('MPI_Sendrecv')
    call MPI_Sendrecv(buffer(1), 1, MPI_INTEGER, MPI_PROC_NULL, 7, buffer(2), 1, MPI_INTEGER, 0, &
                      8, rows, is, error)
  case ('MPI_Sendrecv_replace')
    call MPI_Sendrecv_replace(buffer, 1, MPI_INTEGER, 0, 7, 0, 8, rows, is, error)
  case ('MPI_Probe')
    call MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, is, error)
  case ('MPI_Mprobe')
    call MPI_Mprobe(0, 7, rows, came, is, error)
  case ('MPI_Comm_dup')
    call MPI_Comm_dup(rows, made, error)
  case ('MPI_Comm_dup_with_info')
    call MPI_Comm_dup_with_info(rows, MPI_INFO_NULL, made, error)
  case ('MPI_Comm_create')
    call MPI_Comm_group(rows, all, error)
    call MPI_Comm_create(rows, all, made, error)
  case ('MPI_Comm_split')
    call MPI_Comm_split(rows, 0, 0, made, error)
  case ('MPI_Comm_split_type')
    call MPI_Comm_split_type(rows, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, made, error)
  case ('MPI_Cart_create')
    call MPI_Cart_create(rows, 1, sizes, periods, .false., made, error)
  case ('MPI_Cart_sub')
    call MPI_Cart_sub(rows, periods, made, error)
  case ('MPI_Win_fence')
    call MPI_Win_fence(0, window_of_all, error)
  case ('MPI_Wait')
    call MPI_Wait(requests(1), is, error)
  case ('MPI_Waitall')
    call MPI_Waitall(2, requests, are, error)
  case ('MPI_Waitany')
    call MPI_Waitany(2, requests, position, is, error)
  case ('MPI_Waitsome')
    call MPI_Waitsome(2, requests, i, positions, are, error)
  end select
  call MPI_Finalize(error)
end program blocked
