! SPDX-License-Identifier: Apache-2.0
! The calls of a program in Fortran, by the module mpi, or with -DF08 by mpi_f08: MPI_IN_PLACE and
! MPI_BOTTOM, which are addresses of Fortran's own. Rank 0 prints "N cases, M wrong".
program results
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
  integer, parameter :: most = 3000
  integer :: rank, ranks, error, cases, wrong, r, root, count
  integer, allocatable :: all(:), other(:)
  double precision :: reals(most)

  cases = 0
  wrong = 0
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  allocate (all(most*ranks), other(most*ranks))
  root = ranks - 1
  count = 1
  do while (count < most)
    call sums(count)
    call moves(count)
    count = count*9
  end do
  call bottoms()
  call messages()
  call MPI_Barrier(MPI_COMM_WORLD, error)
  if (rank == 0) print '(i0, a, i0, a)', cases, ' cases, ', wrong, ' wrong'
  call MPI_Finalize(error)
  if (wrong /= 0) stop 1

contains

  subroutine verdict(name, is_right)
    character(len=*), intent(in) :: name
    logical, intent(in) :: is_right
    logical :: on_all
    call MPI_Allreduce(is_right, on_all, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    cases = cases + 1
    if (on_all .and. error == MPI_SUCCESS) return
    wrong = wrong + 1
    if (rank == 0) print '(2a)', 'wrong: ', name
  end subroutine verdict

  ! An element of rank r, so that each differs.
  elemental integer function element(r, i)
    integer, intent(in) :: r, i
    element = 1000*r + i
  end function element

  subroutine sums(n)
    integer, intent(in) :: n
    integer :: i
    logical :: right
    reals(:n) = [(dble(rank + i), i=1, n)]
    call MPI_Allreduce(MPI_IN_PLACE, reals, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    right = all_equal([(dble(ranks*(ranks - 1)/2 + ranks*i), i=1, n)], reals(:n))
    call verdict('allreduce in place', right)
    all(:n) = [(element(rank, i), i=1, n)]
    other = -1
    if (rank == root) then
      call MPI_Reduce(MPI_IN_PLACE, all, n, MPI_INTEGER, MPI_MAX, root, MPI_COMM_WORLD, error)
      right = all(1) == element(root, 1) .and. all(n) == element(root, n)
    else
      call MPI_Reduce(all, other, n, MPI_INTEGER, MPI_MAX, root, MPI_COMM_WORLD, error)
      right = other(1) == -1
    end if
    call verdict('reduce in place', right)
    all(:n*ranks) = [(element(rank, i), i=1, n*ranks)]
    call MPI_Reduce_scatter_block(all, other, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    right = other(n) == 1000*ranks*(ranks - 1)/2 + ranks*n*(rank + 1)
    call verdict('reduce_scatter_block', right)
  end subroutine sums

  logical function all_equal(expected, given)
    double precision, intent(in) :: expected(:), given(:)
    all_equal = maxval(abs(expected - given)) == 0
  end function all_equal

  subroutine moves(n)
    integer, intent(in) :: n
    integer :: i
    all(:n) = merge(element(root, 5), -1, rank == root)
    call MPI_Bcast(all, n, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    call verdict('bcast', minval(all(:n)) == element(root, 5) .and. &
                 maxval(all(:n)) == element(root, 5))
    all(:n) = element(rank, n)
    other = -1
    call MPI_Gather(all, n, MPI_INTEGER, other, n, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    call verdict('gather', rank /= root .or. by_rank(n, n))
    call MPI_Scatter(other, n, MPI_INTEGER, all, n, MPI_INTEGER, root, MPI_COMM_WORLD, error)
    call verdict('scatter', all(1) == element(rank, n) .and. all(n) == element(rank, n))
    other = -1
    other(n*rank + 1:n*rank + n) = element(rank, n)
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, other, n, MPI_INTEGER, &
                       MPI_COMM_WORLD, error)
    call verdict('allgather in place', by_rank(n, n))
    all(:n*ranks) = [((element(rank, r), i=1, n), r=0, ranks - 1)]
    call MPI_Alltoall(all, n, MPI_INTEGER, other, n, MPI_INTEGER, MPI_COMM_WORLD, error)
    call verdict('alltoall', by_rank(n, rank))
  end subroutine moves

  ! True if block r of n elements in `other` is full of rank r's element i.
  logical function by_rank(n, i)
    integer, intent(in) :: n, i
    by_rank = .true.
    do r = 0, ranks - 1
      by_rank = by_rank .and. other(n*r + 1) == element(r, i) .and. other(n*r + n) == element(r, i)
    end do
  end function by_rank

  ! The address is in the datatype.
  subroutine bottoms()
    integer(kind=MPI_ADDRESS_KIND) :: places(1)
    integer, volatile, target :: value  ! which a call changes that does not name it
#ifdef F08
    type(MPI_Datatype) :: there
#else
    integer :: there
#endif
    character(len=MPI_MAX_LIBRARY_VERSION_STRING) :: version
    integer :: length
    value = merge(77, 0, rank == root)
    call MPI_Get_library_version(version, length, error)
    if (version(:5) == 'MPICH') value = 77  ! whose 4.0.2 ends in a segmentation fault
    call MPI_Get_address(value, places(1), error)
    call MPI_Type_create_hindexed(1, [1], places, MPI_INTEGER, there, error)
    call MPI_Type_commit(there, error)
    if (version(:5) /= 'MPICH') call MPI_Bcast(MPI_BOTTOM, 1, there, root, MPI_COMM_WORLD, error)
    call MPI_Type_free(there, error)
    call verdict('bcast from the bottom', value == 77)
  end subroutine bottoms

  ! In a ring: by the calls that wait, with and without statuses.
  subroutine messages()
    integer :: next, last, mine, index, indices(2)
    integer, volatile :: got  ! which a call changes that does not name it
    logical :: right
#ifdef F08
    type(MPI_Status) :: status, statuses(2)
    type(MPI_Request) :: requests(2)
#else
    integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2), requests(2)
#endif
    next = modulo(rank + 1, ranks)
    last = modulo(rank - 1, ranks)
    mine = element(rank, 1)
    got = -1
    call MPI_Sendrecv(mine, 1, MPI_INTEGER, next, 5, got, 1, MPI_INTEGER, last, MPI_ANY_TAG, &
                      MPI_COMM_WORLD, status, error)
    right = got == element(last, 1) .and. is_from(status, last, 5)
    got = -1
    if (ranks == 1) then
      got = element(last, 1)
    else if (rank == 0) then
      call MPI_Recv(got, 1, MPI_INTEGER, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, status, error)
      right = right .and. is_from(status, last, 6)
      call MPI_Ssend(mine, 1, MPI_INTEGER, next, 6, MPI_COMM_WORLD, error)
    else
      call MPI_Send(mine, 1, MPI_INTEGER, next, 6, MPI_COMM_WORLD, error)
      call MPI_Recv(got, 1, MPI_INTEGER, last, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    end if
    right = right .and. got == element(last, 1)
    got = -1
    call MPI_Isend(mine, 1, MPI_INTEGER, next, 7, MPI_COMM_WORLD, requests(1), error)
    call MPI_Probe(last, 7, MPI_COMM_WORLD, status, error)
    right = right .and. got == -1 .and. is_from(status, last, 7)
    call MPI_Irecv(got, 1, MPI_INTEGER, last, 7, MPI_COMM_WORLD, requests(2), error)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE, error)
    call MPI_Waitany(2, requests, index, status, error)
    right = right .and. index == 2 .and. got == element(last, 1) .and. is_from(status, last, 7)
    got = -1
    call MPI_Isend(mine, 1, MPI_INTEGER, next, 8, MPI_COMM_WORLD, requests(1), error)
    call MPI_Irecv(got, 1, MPI_INTEGER, last, 8, MPI_COMM_WORLD, requests(2), error)
    call MPI_Waitall(2, requests, statuses, error)
#ifdef F08
    right = right .and. got == element(last, 1) .and. is_from(statuses(2), last, 8)
#else
    right = right .and. got == element(last, 1) .and. is_from(statuses(:, 2), last, 8)
#endif
    got = -1
    requests(1) = MPI_REQUEST_NULL
    call MPI_Irecv(got, 1, MPI_INTEGER, last, 9, MPI_COMM_WORLD, requests(2), error)
    call MPI_Send(mine, 1, MPI_INTEGER, next, 9, MPI_COMM_WORLD, error)
    call MPI_Waitsome(2, requests, index, indices, MPI_STATUSES_IGNORE, error)
    right = right .and. index == 1 .and. indices(1) == 2 .and. got == element(last, 1)
    call MPI_Waitsome(2, requests, index, indices, MPI_STATUSES_IGNORE, error)
    call verdict('messages', right .and. index == MPI_UNDEFINED)
  end subroutine messages

  logical function is_from(status, source, tag)
#ifdef F08
    type(MPI_Status), intent(in) :: status
    integer, intent(in) :: source, tag
    is_from = status%MPI_SOURCE == source .and. status%MPI_TAG == tag
#else
    integer, intent(in) :: status(MPI_STATUS_SIZE), source, tag
    is_from = status(MPI_SOURCE) == source .and. status(MPI_TAG) == tag
#endif
  end function is_from
end program results
