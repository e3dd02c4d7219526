! SPDX-License-Identifier: Apache-2.0
! Conjugate gradients on a grid, as a program that knows MPI alone: each rank has some of the rows,
! and every step has two sums over all ranks. Prints the residuals, with all of their bits.
program solver
  use mpi
  implicit none
  integer, parameter :: columns = 48, rows = 40, steps = 25
  integer :: rank, ranks, error, step, i, j
  double precision :: old, new, alpha, both(2)
  double precision, allocatable :: x(:, :), r(:, :), p(:, :), q(:, :)

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  allocate (x(columns, 0:rows + 1), r(columns, 0:rows + 1))
  allocate (p(columns, 0:rows + 1), q(columns, 0:rows + 1))
  x = 0
  r = 0
  do j = 1, rows
    do i = 1, columns
      r(i, j) = 1d0/(1 + mod(7*i + 11*(j + rows*rank), 23))
    end do
  end do
  p = r
  q = 0
  old = dot(r, r)
  do step = 1, steps
    call exchange(p)
    call apply(p, q)
    alpha = old/dot(p, q)
    x = x + alpha*p
    r(:, 1:rows) = r(:, 1:rows) - alpha*q(:, 1:rows)
    both = [local(r, r), local(r, x)]
    call MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    new = both(1)
    p(:, 1:rows) = r(:, 1:rows) + new/old*p(:, 1:rows)
    old = new
    if (rank == 0) print '(i4, 2(1x, z16.16))', step, both
  end do
  call MPI_Finalize(error)

contains

  double precision function local(a, b)
    double precision, intent(in) :: a(:, 0:), b(:, 0:)
    local = sum(a(:, 1:rows)*b(:, 1:rows))
  end function

  double precision function dot(a, b)
    double precision, intent(in) :: a(:, 0:), b(:, 0:)
    double precision :: own
    own = local(a, b)
    call MPI_Allreduce(own, dot, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
  end function

  ! The rows at the edges of the ranks below and above.
  subroutine exchange(a)
    double precision, intent(inout) :: a(:, 0:)
    integer :: below, above
    below = merge(MPI_PROC_NULL, rank - 1, rank == 0)
    above = merge(MPI_PROC_NULL, rank + 1, rank == ranks - 1)
    call MPI_Sendrecv(a(1, rows), columns, MPI_DOUBLE_PRECISION, above, 1, a(1, 0), columns, &
                      MPI_DOUBLE_PRECISION, below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    call MPI_Sendrecv(a(1, 1), columns, MPI_DOUBLE_PRECISION, below, 2, a(1, rows + 1), columns, &
                      MPI_DOUBLE_PRECISION, above, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  end subroutine

  subroutine apply(a, b)
    double precision, intent(in) :: a(:, 0:)
    double precision, intent(out) :: b(:, 0:)
    integer :: i, j
    b = 0
    do j = 1, rows
      do i = 1, columns
        b(i, j) = 4.1d0*a(i, j) - a(i, j - 1) - a(i, j + 1)
        if (i > 1) b(i, j) = b(i, j) - a(i - 1, j)
        if (i < columns) b(i, j) = b(i, j) - a(i + 1, j)
      end do
    end do
  end subroutine

end program
