//! ResNet-50 for 1000 classes, one image of 224 × 224.
//!
//! The network of He et al., "Deep Residual Learning for Image Recognition" (2015), table 1, in the variant that
//! torchvision calls v1.5: the stride of a bottleneck is in its 3 × 3 convolution. As for inference, batch normalisations
//! are folded into the convolutions, which then have a bias.

use super::builder::{Builder, int, ints};
use crate::onnx::proto::ModelProto;

/// Bottlenecks, inner channels and stride of each stage; a bottleneck has four times as many output channels.
const STAGES: [(usize, i64, i64); 4] = [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)];

/// A square convolution.
struct Conv {
    inputs: i64,
    outputs: i64,
    kernel: i64,
    stride: i64,
}

/// The graph: 53 convolutions and one gemm.
pub fn resnet50() -> ModelProto {
    let mut graph = Builder::new("resnet50");
    let image = graph.input("image", &[1, 3, 224, 224]);
    let stem = conv(&mut graph, "conv1", &image, &Conv { inputs: 3, outputs: 64, kernel: 7, stride: 2 });
    let stem = graph.node("Relu", "relu1", &[&stem], vec![]);
    let window = vec![ints("kernel_shape", &[3, 3]), ints("strides", &[2, 2]), ints("pads", &[1, 1, 1, 1])];
    let mut value = graph.node("MaxPool", "maxpool", &[&stem], window);
    let mut channels = 64;
    for (stage, (blocks, inner, stride)) in STAGES.into_iter().enumerate() {
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            let stride = if block == 0 { stride } else { 1 };
            value = bottleneck(&mut graph, &name, &value, channels, inner, stride);
            channels = 4 * inner;
        }
    }
    let pooled = graph.node("GlobalAveragePool", "avgpool", &[&value], vec![]);
    let flat = graph.node("Flatten", "flatten", &[&pooled], vec![int("axis", 1)]);
    let weight = graph.input("fc.weight", &[1000, channels]);
    let bias = graph.input("fc.bias", &[1000]);
    let classes = graph.node("Gemm", "fc", &[&flat, &weight, &bias], vec![int("transB", 1)]);
    graph.finish(&classes, &[1, 1000])
}

/// 1 × 1, 3 × 3 and 1 × 1 convolutions beside a shortcut, which has a convolution where the shape changes.
fn bottleneck(graph: &mut Builder, name: &str, value: &str, channels: i64, inner: i64, stride: i64) -> String {
    let outputs = 4 * inner;
    let reduce = Conv { inputs: channels, outputs: inner, kernel: 1, stride: 1 };
    let inside = conv(graph, &format!("{name}.conv1"), value, &reduce);
    let inside = graph.node("Relu", &format!("{name}.relu1"), &[&inside], vec![]);
    let middle = Conv { inputs: inner, outputs: inner, kernel: 3, stride };
    let inside = conv(graph, &format!("{name}.conv2"), &inside, &middle);
    let inside = graph.node("Relu", &format!("{name}.relu2"), &[&inside], vec![]);
    let expand = Conv { inputs: inner, outputs, kernel: 1, stride: 1 };
    let inside = conv(graph, &format!("{name}.conv3"), &inside, &expand);
    let shortcut = if stride != 1 || channels != outputs {
        conv(graph, &format!("{name}.downsample"), value, &Conv { inputs: channels, outputs, kernel: 1, stride })
    } else {
        value.to_owned()
    };
    let sum = graph.node("Add", &format!("{name}.add"), &[&inside, &shortcut], vec![]);
    graph.node("Relu", &format!("{name}.relu3"), &[&sum], vec![])
}

/// A convolution that keeps the centre of the image, with bias.
fn conv(graph: &mut Builder, name: &str, value: &str, conv: &Conv) -> String {
    let weight = graph.input(&format!("{name}.weight"), &[conv.outputs, conv.inputs, conv.kernel, conv.kernel]);
    let bias = graph.input(&format!("{name}.bias"), &[conv.outputs]);
    let attributes = vec![
        ints("kernel_shape", &[conv.kernel; 2]),
        ints("strides", &[conv.stride; 2]),
        ints("pads", &[conv.kernel / 2; 4]),
    ];
    graph.node("Conv", name, &[value, &weight, &bias], attributes)
}
