// SPDX-License-Identifier: Apache-2.0
// Models: the shapes of the parameters of known networks, in the order in which training jobs push
// them.
#pragma once

#include <vector>

#include <tutti/shape.hpp>

namespace apps::benchmark {

/// The 161 parameters of ResNet-50. Source: He et al., CVPR 2016, in torchvision's order.
std::vector<tutti::Shape> resnet50();

/// The 199 parameters of BERT-base, uncased. Source: Devlin et al., NAACL 2019.
std::vector<tutti::Shape> bert_base();

}  // namespace apps::benchmark
