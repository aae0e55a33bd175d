/* SPDX-License-Identifier: MIT
 * Messages of many sizes around a ring, reductions and one-sided access, each with its result checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size;

#define NEED(x)                                                              \
  do {                                                                       \
    if (!(x)) {                                                              \
      fprintf(stderr, "rank %d: line %d: %s is wrong\n", rank, __LINE__, #x); \
      MPI_Abort(MPI_COMM_WORLD, 1);                                          \
    }                                                                        \
  } while (0)

static int value(int of, int i) {
  return of * 1000003 + i * 7 + 1;
}

static void ring(int n) {
  int *out = malloc((size_t)n * sizeof *out), *in = calloc((size_t)n, sizeof *in);
  int next = (rank + 1) % size, previous = (rank + size - 1) % size;
  for (int i = 0; i < n; ++i) out[i] = value(rank, i);
  MPI_Sendrecv(out, n, MPI_INT, next, n, in, n, MPI_INT, previous, n, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  for (int i = 0; i < n; ++i) NEED(in[i] == value(previous, i));
  free(out);
  free(in);
}

static void reduce(int n) {
  double *mine = malloc((size_t)n * sizeof *mine), *all = malloc((size_t)n * sizeof *all);
  for (int i = 0; i < n; ++i) mine[i] = (rank + 1) * (double)i;
  MPI_Allreduce(mine, all, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (int i = 0; i < n; ++i) NEED(all[i] == size * (size + 1) / 2 * (double)i);
  free(mine);
  free(all);
}

static void one_sided(void) {
  enum { kWords = 4096 };
  int *window, *local = malloc(kWords * sizeof *local);
  MPI_Win win;
  MPI_Win_allocate(kWords * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
  for (int i = 0; i < kWords; ++i) local[i] = value(rank, i);
  MPI_Win_fence(0, win);
  MPI_Put(local, kWords, MPI_INT, (rank + 1) % size, 0, kWords, MPI_INT, win);
  MPI_Win_fence(0, win);
  for (int i = 0; i < kWords; ++i) NEED(window[i] == value((rank + size - 1) % size, i));
  MPI_Get(local, kWords, MPI_INT, (rank + 1) % size, 0, kWords, MPI_INT, win);
  MPI_Win_fence(0, win);
  for (int i = 0; i < kWords; ++i) NEED(local[i] == value(rank, i));
  MPI_Win_free(&win);
  free(local);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int n = 1; n <= 1 << 18; n *= 4) ring(n);
  for (int n = 1; n <= 1 << 14; n *= 4) reduce(n);
  one_sided();
  if (rank == 0) printf("%d ranks: all sums right\n", size);
  MPI_Finalize();
  return 0;
}
