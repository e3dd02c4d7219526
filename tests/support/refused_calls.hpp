// SPDX-License-Identifier: Apache-2.0
// Makes calls of the system fail in a test, as a container's seccomp profile, an old kernel or a
// file system does. Linked into a test, or preloaded into programs: refused_calls.cpp.
#pragma once

namespace test {

/// From now on memfd_create() fails with this error; 0: it works. With EINVAL, it fails only if it
/// is given MFD_NOEXEC_SEAL, as before Linux 6.3.
void refuse_memfd(int error);
/// From now on fsync() of a folder fails with this error; 0: it works.
void refuse_fsync_of_folders(int error);

}  // namespace test
