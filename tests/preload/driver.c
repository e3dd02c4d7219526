// SPDX-License-Identifier: Apache-2.0
// Stands in for libcuda.so.1: what the program has claimed is in a GPU's memory.
#include <stddef.h>
#include <stdint.h>

enum { MEMORY_TYPE = 2, HOST = 1, DEVICE = 2, INVALID_VALUE = 1, MOST = 1000 };

static struct { uintptr_t begin, end; } claimed[MOST];
static int count;

void claim(const void* memory, size_t bytes);
int cuPointerGetAttribute(void* data, int attribute, uint64_t pointer);

void claim(const void* memory, size_t bytes) {
  if (count == MOST) return;
  claimed[count].begin = (uintptr_t)memory;
  claimed[count++].end = (uintptr_t)memory + bytes;
}

/* Of memory that CUDA does not know it has no attributes. */
int cuPointerGetAttribute(void* data, int attribute, uint64_t pointer) {
  for (int i = 0; i < count; ++i) {
    if (attribute != MEMORY_TYPE || pointer < claimed[i].begin || pointer >= claimed[i].end) {
      continue;
    }
    *(unsigned*)data = DEVICE;
    return 0;
  }
  return INVALID_VALUE;
}
