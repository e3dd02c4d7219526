// SPDX-License-Identifier: Apache-2.0
// Resolves the arguments of a call to its distinct keys, each with its tensors.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/arguments.hpp"
#include "tutti/row_sparse.hpp"

namespace tutti {

/// One distinct key of a call and all tensors given for it, in the order given.
template <class View>
struct KeyGroup {
  Key key;
  std::vector<View> tensors;
};

/// Errors  invalid_argument: a tensor without memory, or on a GPU that this process does not have.
void require_usable(const Key& key, const ConstTensorView& tensor);
void require_usable(const Key& key, const RowSparseView& rows);

/// Errors  invalid_argument: numbers of keys and tensors that do not fit together, a key without
///         tensors, strings and numbers in one list, a tensor that is not usable as above.
std::vector<KeyGroup<ConstTensorView>> resolve(const Keys& keys, const Values& values);
std::vector<KeyGroup<TensorView>> resolve(const Keys& keys, const Outputs& outputs);
std::vector<KeyGroup<RowSparseView>> resolve(const Keys& keys, const RowSparseValues& values);
std::vector<KeyGroup<RowSparseOutput>> resolve(const Keys& keys, const RowSparseOutputs& outputs);

}  // namespace tutti
