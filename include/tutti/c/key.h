// SPDX-License-Identifier: Apache-2.0
// Keys of the C API.
#ifndef TUTTI_C_KEY_H
#define TUTTI_C_KEY_H

#include <stdint.h>

/// The key of a value: `text` unless it is NULL, else `number`. A store holds keys of one kind: its
/// first key fixes which. The text ends with a 0 byte and is not kept.
typedef struct tutti_key {
  const char* text;
  int64_t number;
} tutti_key;

#endif
