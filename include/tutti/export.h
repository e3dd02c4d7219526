// SPDX-License-Identifier: Apache-2.0
// Visibility: the shared library exports declarations marked TUTTI_API, and nothing else. For C and
// C++.
#ifndef TUTTI_EXPORT_H
#define TUTTI_EXPORT_H

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#define TUTTI_INTERNAL __attribute__((visibility("hidden")))
#else
#define TUTTI_API
#define TUTTI_INTERNAL
#endif

#endif
