// SPDX-License-Identifier: Apache-2.0
// Stands in for libcuda.so.1: what the program has claimed is in a GPU's memory.
#include <stddef.h>
#include <stdint.h>

enum { MEMORY_TYPE = 2, UNKNOWN = 0, DEVICE = 2, INVALID_VALUE = 1, MOST = 1000 };

static struct { uintptr_t begin, end; } claimed[MOST];
static int count;

void claim(const void* memory, size_t bytes);
int cuPointerGetAttributes(unsigned asked, int* attributes, void** data, uint64_t pointer);

void claim(const void* memory, size_t bytes) {
  if (count == MOST) return;
  claimed[count].begin = (uintptr_t)memory;
  claimed[count++].end = (uintptr_t)memory + bytes;
}

int cuPointerGetAttributes(unsigned asked, int* attributes, void** data, uint64_t pointer) {
  if (asked != 1 || attributes[0] != MEMORY_TYPE) return INVALID_VALUE;
  *(unsigned*)data[0] = UNKNOWN;
  for (int i = 0; i < count; ++i) {
    const int is_inside = pointer >= claimed[i].begin && pointer < claimed[i].end;
    if (is_inside) *(unsigned*)data[0] = DEVICE;
  }
  return 0;
}
