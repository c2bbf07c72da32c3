// SyReNN's own C++ without its server: what `peers.py` calls through ctypes. Nothing of SyReNN is copied here.
//
// In a checkout of SyReNN (github.com/95616ARG/SyReNN), with Debian's libeigen3-dev, libtbb-dev, libopenblas-dev,
// libprotobuf-dev and protobuf-compiler:
//
//   mkdir -p build/syrenn_proto build/openblas && touch build/mkldnn.hpp && protoc --cpp_out=build syrenn_proto/syrenn.proto
//   echo '#include "syrenn_proto/syrenn.pb.h"' > build/syrenn_proto/syrenn.grpc.pb.h
//   ln -s /usr/include/x86_64-linux-gnu/cblas.h build/openblas/cblas.h
//   sed -i 's/parallel_do_feeder/feeder/; s/parallel_do(/parallel_for_each(/' syrenn_server/pwl_transformer.cc
//   sed -i '1i #include <chrono>\n#include <functional>' syrenn_server/shared.h
//   cd syrenn_server && g++ -std=c++17 -O3 -march=native -fPIC -shared -w -I../build -I.. -I/usr/include/eigen3 \
//     .../benchmarks/syrenn_kernels.cc ../build/syrenn_proto/syrenn.pb.cc {transformer,affine_transformer}.cc \
//     {fullyconnected_transformer,pwl_transformer,segmented_line,upolytope}.cc -lprotobuf -ltbb -lopenblas -o libsyrenn.so
//   SYRENN_LIBRARY=$PWD/libsyrenn.so make bench PEER=syrenn
//
// The ReLU stands here, since SyReNN's calls a version of MKL-DNN that is no longer packaged: the same comparisons, and
// a maximum with zero. One thread, as all rows.

#include <memory>
#include <vector>

#include "syrenn_server/fullyconnected_transformer.h"
#include "syrenn_server/pwl_transformer.h"
#include "tbb/global_control.h"

namespace {

class Relu : public PWLTransformer {
 public:
  void Compute(RMMatrixXf* inout) const override { *inout = inout->cwiseMax(0.0f); }
  size_t out_size(size_t size) const override { return size; }

 protected:
  size_t n_piece_faces(size_t dims) const override { return dims; }
  double CrossingRatio(Eigen::Ref<const RMVectorXf> from, Eigen::Ref<const RMVectorXf> to, size_t face) const override {
    return -from(face) / (to(face) - from(face));
  }
  int PointSign(Eigen::Ref<const RMVectorXf> point, size_t face) const override {
    return (point(face) > 0) - (point(face) < 0);
  }
};

using Layers = std::vector<std::unique_ptr<LayerTransformer>>;
using Map = Eigen::Map<const RMMatrixXf>;

tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);

}  // namespace

extern "C" {

void* network_new() { return new Layers(); }

void network_free(void* network) { delete static_cast<Layers*>(network); }

// One dense layer, weights as (inputs, outputs), and a ReLU behind it.
void network_add(void* network, int inputs, int outputs, const float* weights, const float* biases, int relu) {
  auto* layers = static_cast<Layers*>(network);
  const RMMatrixXf matrix = Map(weights, inputs, outputs);
  const RMVectorXf shift = Map(biases, 1, outputs);
  layers->emplace_back(new FullyConnectedTransformer(matrix, shift));
  if (relu) layers->emplace_back(new Relu());
}

// Regions on the polygon with these corners, counter-clockwise.
long plane(void* network, int corners, int inputs, const float* points) {
  RMMatrixXf vertices = Map(points, corners, inputs);
  std::vector<size_t> polygon(corners);
  for (int k = 0; k < corners; k++) polygon[k] = k;
  UPolytope found(&vertices, 2, {polygon});
  for (auto& layer : *static_cast<Layers*>(network)) layer->TransformUPolytope(&found);
  return found.n_polytopes();
}

// Regions along a segment.
long segment(void* network, int inputs, const float* ends) {
  const RMVectorXf a = Map(ends, 1, inputs), b = Map(ends + inputs, 1, inputs);
  SegmentedLine found(a, b);
  for (auto& layer : *static_cast<Layers*>(network)) layer->TransformLine(&found);
  return found.Size() - 1;
}

}  // extern "C"
