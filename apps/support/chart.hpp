// SPDX-License-Identifier: Apache-2.0
// Curves over message sizes or numbers of nodes, as a picture that every browser shows: SVG 1.1,
// panels in rows of two under lines of text.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace apps {

// --- logarithmic axes: their range and their ticks ---------------------------------------------

struct Tick {
  double value = 0.0;
  std::string label;  ///< empty: a grid line alone
  bool major = false;
};

struct Axis {
  double low = 1.0;
  double high = 10.0;
  std::vector<Tick> ticks;

  /// From 0 at `low` to 1 at `high`.
  [[nodiscard]] double position(double value) const;
};

/// Powers of two, labelled "8 B", "1 KiB", "1 MiB", so many that the labels have room.
/// `values` has a positive one.
Axis byte_axis(std::span<const double> values);
/// The same with numbers: "2", "1,024".
Axis count_axis(std::span<const double> values);

/// Decades with a grid line at 2 and 5 between them, which are labelled too on a short axis. The
/// range ends at the next 1, 2 or 5 times a power of ten.
using Label = std::string (*)(double value);
Axis decade_axis(std::span<const double> values, Label label);

/// "0.1 µs", "10 µs", "1 ms", "10 s"; the argument is in microseconds.
std::string microseconds_label(double value);
/// "0.01", "10".
std::string plain_label(double value);

// --- panels --------------------------------------------------------------------------------------

inline constexpr double kLeftPanel = 78.0;  ///< where the axis of each panel is
inline constexpr double kRightPanel = 640.0;

/// Colours that stay apart for most colour-blind readers, too.
inline constexpr const char* kBlue = "#0a62c9";
inline constexpr const char* kPurple = "#8b3fb8";
inline constexpr const char* kOrange = "#d1600a";
inline constexpr const char* kGreen = "#4f8a10";
inline constexpr const char* kGrey = "#6e7781";

struct Point {
  double at = 0.0;     ///< along the panel: bytes, or a number
  double value = 0.0;  ///< drawn if it is positive
};

struct Series {
  std::string id;    ///< of the SVG class "series-ID"
  std::string name;  ///< in the legend
  const char* color = kBlue;
  std::vector<Point> points;
};

/// A value as a line across the panel, with words; 0: none.
struct Level {
  double value = 0.0;
  std::string label;
};

struct PanelText {
  const char* title;
  Label label;            ///< what stands at a value
  const char* otherwise;  ///< what stands there if no value is positive
  const char* along = "message size";
  Axis (*axis)(std::span<const double> values) = byte_axis;  ///< along it
};

/// Curves on logarithmic axes, the first in front. If each has one point: bars, from 0 on.
std::string panel(double left, const PanelText& text, const std::vector<Series>& all,
                  const Level& level = {});

/// The whole picture: `title`, a small line for each of `lines`, the legend, and rows of panels.
std::string picture(const std::string& title, std::span<const std::string> lines,
                    const std::vector<Series>& legend, const std::vector<std::string>& rows);

}  // namespace apps
