// SPDX-License-Identifier: Apache-2.0
// Lists of shapes that training jobs push: the parameters of known networks, in their order.
#pragma once

#include <string>
#include <vector>

#include <tutti/shape.hpp>

namespace apps::benchmark {

/// The 161 parameters of ResNet-50. Source: He et al., CVPR 2016, in torchvision's order.
std::vector<tutti::Shape> resnet50();

/// The 199 parameters of BERT-base, uncased. Source: Devlin et al., NAACL 2019.
std::vector<tutti::Shape> bert_base();

/// "resnet50", "bert-base", or a file with one shape per line: "64x3x7x7", "64, 3, 7, 7" or
/// "64 3 7 7"; what follows a '#' is a comment.
/// Errors  invalid_argument: no such file, or a line (with its number) that is no shape.
std::vector<tutti::Shape> load_model(const std::string& name_or_file);

}  // namespace apps::benchmark
