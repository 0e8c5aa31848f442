// See judge_document.hpp.
#include "cli/judge_document.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/schema.hpp"
#include "io/table.hpp"

namespace rooflane {
namespace {

using nlohmann::ordered_json;

// JSON has no infinity and no NaN.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(fmt::format("{}", value));
}

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json index_of(const judge::FirstWrong& wrong, const Problem& problem) {
  for (const TensorSpec& tensor : problem.kernel().tensors(problem)) {
    if (tensor.name != wrong.tensor) continue;
    const Shape shape = tensor_shape(problem, tensor);
    ordered_json index = ordered_json::array({wrong.col});
    std::int64_t row = wrong.row;
    for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
      const std::int64_t length = std::max<std::int64_t>(shape[axis], 1);
      index.insert(index.begin(), row % length);
      row /= length;
    }
    return index;
  }
  return ordered_json::array({wrong.row, wrong.col});
}

ordered_json wrong_json(const judge::Request& request, const judge::Judgement& judgement) {
  if (!judgement.first_wrong) return nullptr;
  const judge::FirstWrong& wrong = *judgement.first_wrong;
  const Kernel* const kernel = &request.problems.front().kernel();
  const Problem problem = parse_problem(wrong.shape, std::span(&kernel, 1));
  return {{"shape", wrong.shape},
          {"seed", request.seed},
          {"distribution", wrong.distribution},
          {"threads", wrong.threads},
          {"tensor", wrong.tensor},
          {"index", index_of(wrong, problem)},
          {"got", number(wrong.got)},
          {"expected", number(wrong.expected)},
          {"bound", number(wrong.bound)}};
}

ordered_json peers_json(const judge::ShapeFigures& shape) {
  auto peers = ordered_json::array();
  for (const judge::PeerFigure& peer : shape.peers) {
    ordered_json one = {{"variant", peer.variant}, {"p50_us", peer.p50_us}};
    const auto interval = peer.ratio ? peer.ratio->interval() : std::nullopt;
    one["ratio"] = peer.ratio ? ordered_json(peer.ratio->value()) : ordered_json(nullptr);
    one["ratio_low"] = interval ? ordered_json(interval->low) : ordered_json(nullptr);
    one["ratio_high"] = interval ? ordered_json(interval->high) : ordered_json(nullptr);
    peers.push_back(one);
  }
  return peers;
}

ordered_json shape_json(const judge::Request& request, const judge::ShapeFigures& shape) {
  const Row& row = shape.row;
  const double p50 = *row.p50_ns / 1e3;
  // The overhead is the median of 51 calls; of such a median the 95 % interval is 0.51 of the
  // median absolute deviation to each side: 1.96 * 1.2533 * 1.4826 / sqrt(51).
  constexpr double of_spread = 0.51;
  const double half =
      std::hypot(p50 * row.interval_pct.value_or(0) / 100, of_spread * shape.overhead_spread_us);
  return {{"shape", shape.problem.text()},
          {"hidden", false},
          {"threads", request.threads},
          {"verdict", judge::name_of(shape.verdict)},
          {"p50_us", p50},
          {"low_us", p50 - half},
          {"high_us", p50 + half},
          {"overhead_us", shape.overhead_us},
          {"overhead_spread_us", shape.overhead_spread_us},
          {"roof_us", or_null(shape.roof_us)},
          {"roof_pct", or_null(row.roof_pct)},
          {"binds", row.bound},
          {"sol", or_null(shape.sol)},
          {"peers", peers_json(shape)}};
}

ordered_json hot_loop_json(const judge::Judgement& judgement) {
  if (!judgement.hot_loop) return nullptr;
  const judge::HotLoop& loop = *judgement.hot_loop;
  return {{"function", loop.function},     {"instructions", loop.instructions},
          {"width_bits", loop.width_bits}, {"spills", loop.spills},
          {"gathers", loop.gathers},       {"calls", loop.calls}};
}

}  // namespace

ordered_json judge_document(const judge::Request& request, const judge::Judgement& judgement) {
  const jail::Means means = jail::means_of(request.kind);
  auto shapes = ordered_json::array(), hidden = ordered_json::array();
  for (const judge::ShapeFigures& shape : judgement.shapes) {
    shapes.push_back(shape_json(request, shape));
  }
  for (const Problem& problem : judgement.hidden) hidden.push_back(problem.text());
  ordered_json cheat = nullptr;
  if (judgement.cheat) {
    cheat = {{"number", judgement.cheat->number},
             {"name", judgement.cheat->name},
             {"evidence", judgement.reason}};
  }
  return {
      {"schema", "rooflane-judge-1"},
      {"schema_version", Row().schema_version},
      {"kernel", request.problems.front().kernel().name},
      {"source",
       {{"path", request.source.path},
        {"sha256", request.source.sha256},
        {"kind", judge::name_of(request.source.kind)},
        {"flags", judgement.build.flags},
        {"compiler", judgement.build.compiler}}},
      {"jail", {{"kind", jail::name_of(request.kind)}, {"has", means.has}, {"lacks", means.lacks}}},
      {"verdict", judge::name_of(judgement.verdict)},
      {"cheat", cheat},
      {"reason", judgement.reason},
      {"first_wrong", wrong_json(request, judgement)},
      {"build",
       {{"ok", judgement.build.good},
        {"messages", judgement.build.messages},
        {"not_vectorised", judgement.build.not_vectorised}}},
      {"seed", request.seed},
      {"hidden", hidden},
      {"shapes", shapes},
      {"hot_loop", hot_loop_json(judgement)},
      {"maps", judgement.maps},
      {"next", judgement.next}};
}

namespace {

std::string figure(const ordered_json& value, const char* format) {
  return value.is_number() ? fmt::format(fmt::runtime(format), value.get<double>()) : "-";
}

std::string shapes_text(const ordered_json& document) {
  std::string text;
  for (const ordered_json& shape : document["shapes"]) {
    text += fmt::format("\n{}, {} thread{}: {} us, {} % of the roof ({} binds), SOL {}\n",
                        shape["shape"].get<std::string>(), shape["threads"].get<int>(),
                        shape["threads"] == 1 ? "" : "s", figure(shape["p50_us"], "{:.4g}"),
                        figure(shape["roof_pct"], "{:.1f}"), shape["binds"].get<std::string>(),
                        figure(shape["sol"], "{:.2f}"));
    TextTable table{{{"beside", false}, {"us", true}, {"its time / this", true}, {"95 %", true}},
                    {}};
    for (const ordered_json& peer : shape["peers"]) {
      table.rows.push_back(
          {peer["variant"].get<std::string>(), figure(peer["p50_us"], "{:.4g}"),
           figure(peer["ratio"], "{:.3f}"),
           figure(peer["ratio_low"], "{:.3f}") + " to " + figure(peer["ratio_high"], "{:.3f}")});
    }
    text += terminal_table(table);
  }
  return text;
}

}  // namespace

std::string judge_text(const ordered_json& document) {
  std::string text = fmt::format("{}  {}\n", document["verdict"].get<std::string>(),
                                 document["reason"].get<std::string>());
  if (document["jail"]["kind"] == "unsafe") text += "Judged without a jail (--unsafe).\n";
  const std::string messages = document["build"]["messages"];
  if (!messages.empty()) text += messages + (messages.ends_with('\n') ? "" : "\n");
  if (!document["first_wrong"].is_null()) {
    const ordered_json& wrong = document["first_wrong"];
    text += fmt::format("First wrong: {}{} of {} ({} inputs, seed {}): {} instead of {}\n",
                        wrong["tensor"].get<std::string>(), wrong["index"].dump(),
                        wrong["shape"].get<std::string>(), wrong["distribution"].get<std::string>(),
                        wrong["seed"].dump(), wrong["got"].dump(), wrong["expected"].dump());
  }
  text += shapes_text(document);
  const ordered_json& loop = document["hot_loop"];
  if (!loop.is_null()) {
    text += fmt::format(
        "\nHot loop in {}: {} instructions, vectors of {} bits; spills: {}, gathers: {}, calls: "
        "{}\n",
        loop["function"].get<std::string>(), loop["instructions"].size(),
        loop["width_bits"].get<int>(), loop["spills"].get<int>(), loop["gathers"].get<int>(),
        loop["calls"].get<int>());
  }
  for (const ordered_json& file : document["maps"]) {
    text += fmt::format("Mapped: {}\n", file.get<std::string>());
  }
  if (!document["next"].get<std::string>().empty()) {
    text += fmt::format("Next: {}\n", document["next"].get<std::string>());
  }
  return text;
}

std::string history_text(const std::vector<ordered_json>& attempts) {
  TextTable table{{{"attempt", true},
                   {"kernel", false},
                   {"source", false},
                   {"verdict", false},
                   {"us", true},
                   {"% of roof", true},
                   {"SOL", true}},
                  {}};
  for (const ordered_json& attempt : attempts) {
    const ordered_json shapes = attempt.value("shapes", ordered_json::array());
    const ordered_json first = shapes.empty() ? ordered_json::object() : shapes[0];
    table.rows.push_back(
        {attempt.value("attempt", ordered_json(0)).dump(), attempt["kernel"].get<std::string>(),
         attempt["source"].value("path", std::string()), attempt["verdict"].get<std::string>(),
         figure(first.value("p50_us", ordered_json()), "{:.4g}"),
         figure(first.value("roof_pct", ordered_json()), "{:.1f}"),
         figure(first.value("sol", ordered_json()), "{:.2f}")});
  }
  return terminal_table(table);
}

}  // namespace rooflane
