// SPDX-License-Identifier: Apache-2.0
// FunctionRef: a reference to a callable: two pointers, no allocation. C++20 has no such type.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace tutti::collectives {

template <class Signature>
class FunctionRef;

/// Refers to a callable that outlives it; meant for parameters.
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef> &&
           std::is_invocable_r_v<Result, Callable&, Arguments...>) FunctionRef(Callable&& callable)
  noexcept  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(
              std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const {
    return call_(object_, std::forward<Arguments>(arguments)...);
  }

 private:
  void* object_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace tutti::collectives
