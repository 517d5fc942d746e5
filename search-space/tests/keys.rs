//! Keys and workloads are one-to-one; everything else is refused with a place. Vectors: `tests/vectors/keys.txt`.

#![allow(clippy::unwrap_used, reason = "helpers of tests stop the test")]

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_search_space::workload::{
    Axis, AxisKind, DType, Determinism, EpilogueStep, Extent, KeyError, MathMode, Op, Operand, Role, Storage,
    Subscript, row_major,
};
use tilewright_search_space::{Workload, samples};

const MATMUL: &str = "tw1;contract.madd;m:p512,n:p512,k:r512;in.a=f32[m,k]@s(512,1)a64;in.b=f32[k,n]@s(512,1)a64;\
                      out.c=f32[m,n]@s(512,1)a64;acc=f32;epi=-;math=ieee;det=fixed;ws=268435456";
/// Uses every construct of the grammar but the parameters of operations.
const EVERYTHING: &str = "tw1;contract.madd;b:b2,q:p1..64/1,g:g7,d:p8,r:r3;in.x=f16[b,2*q+r-1:64,-d+7]@s(512,8,1)a16;\
                          in.w=bf16[r,d]@freea64<(x-zp)*scale:1/2>;in.t=i8[]@s()a1;in.bias=f64[8*b+d]@s(1)a8;\
                          io.z=u8[b,q,g,d]@s(3584,56,8,1)a1;out.y=i32[b,q,0,g,d]@s(4000,60,8,8,1)a64~x;acc=f64;\
                          epi=bias(bias).relu.gelu_erf.gelu_tanh.silu.clip(-inf,6.5).scale(1e-7).add(bias).mul(t)\
                          .exp.log.tanh.erf.cast(f16);math=fast;det=any;ws=0";
const LAYERNORM: &str = "tw1;rows.layernorm(0.00001);m:p4,n:r6;in.x=f32[m,n]@s(6,1)a4;in.gamma=f32[n]@s(1)a4;\
                         out.y=f16[n,m]@s(4,1)a4;acc=f32;epi=mul(gamma);math=ieee;det=fixed;ws=0";
const ATTENTION: &str = "tw1;attention(0.125,causal);h:b2,g:p3,m:p4,e:p5,n:r6,d:r7;in.q=f32[3*h+g,m,d]@s(28,7,1)a4;\
                         in.k=f32[h,n,d]@s(42,7,1)a4;in.v=f32[h,n,e]@s(30,5,1)a4;out.o=f32[3*h+g,m,e]@s(20,5,1)a4;\
                         acc=f32;epi=-;math=ieee;det=fixed;ws=0";
const MAP: &str = "tw1;map;m:p4,n:p6;in.x=f32[m,n]@s(6,1)a4;out.y=f32[n,m]@s(4,1)a4;acc=f32;epi=-;math=ieee;\
                   det=fixed;ws=0";
const CANONICAL: [&str; 5] = [MATMUL, EVERYTHING, LAYERNORM, ATTENTION, MAP];

fn refusal(text: &str) -> String {
    Workload::parse_key(text).unwrap_err().to_string()
}

#[test]
fn canonical_texts_round_trip() {
    for text in CANONICAL {
        let workload = Workload::parse_key(text).unwrap();
        assert_eq!(workload.key(), text);
        assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
    }
}

fn swap(base: &str, from: &str, to: &str) -> String {
    assert!(base.contains(from), "{from}");
    base.replacen(from, to, 1)
}

#[track_caller]
fn refused(base: &str, swaps: &[(&str, &str, &str)]) {
    let mut unexpected = Vec::new();
    for (from, to, words) in swaps {
        let message = refusal(&swap(base, from, to));
        if !message.contains(words) {
            unexpected.push(format!("{from} -> {to}: {message}"));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

#[test]
fn rules_of_row_passes_maps_and_attention() {
    refused(
        LAYERNORM,
        &[
            ("(0.00001)", "", "op at byte 18: found \";\", expected \"(\""),
            ("(0.00001)", "(1e-5)", "found \"1e-5)\", expected 0.00001, the shortest decimal"),
            ("(0.00001)", "(inf)", "op at byte 19: found \"inf)\", expected a finite number"),
            ("(0.00001)", "(-0)", "expected 0, the shortest decimal"),
            ("(0.00001)", "(-1)", "at byte 4: the operation rows.layernorm has the parameter -1; expected a number"),
            ("rows.layernorm(0.00001)", "rows.softmax(1)", "op at byte 16: found \"(1)\", expected \";\""),
            ("n:r6", "n:p6", "the axes are too few for rows.layernorm; expected at least one reduction axis"),
            ("mul(gamma)", "relu", "have 2 inputs besides those of the epilogue; rows.layernorm takes 1"),
            (
                "out.y=f16[n,m]@s(4,1)a4",
                "out.y=f16[m]@s(1)a4",
                "operand \"y\" has elements written twice; expected every axis",
            ),
            ("out.y", "out.z=f32[n,m]@s(4,1)a4;out.y", "have 2 outputs; rows.layernorm takes 1"),
            ("x=f32", "x=i32", "operand \"x\" has type i32; rows.layernorm takes floating-point types"),
            ("rows.layernorm(0.00001)", "rows.argmax", "operand \"y\" is the output of rows.argmax; expected"),
        ],
    );
    let argmax = "tw1;rows.argmax;m:p4,n:r6;in.x=f32[m,n]@s(6,1)a4;out.y=i32[m]@s(1)a4;acc=f32;epi=-;math=ieee;\
                  det=fixed;ws=0";
    assert!(Workload::parse_key(argmax).is_ok());
    refused(
        argmax,
        &[
            ("y=i32", "y=f32", "operand \"y\" has type f32; rows.argmax takes i32 for its result"),
            ("epi=-", "epi=relu", "the epilogue has steps; rows.argmax gives an index and takes none"),
        ],
    );
    refused(
        MAP,
        &[
            ("n:p6", "n:r6", "operand \"y\" is the output of map; expected subscripts over batch and parallel axes"),
            ("n:p6", "n:p6,k:r2", "axis \"k\" does not fit map; expected no reduction axis"),
            ("out.y", "in.z=f32[]@s()a4;out.y", "have 2 inputs besides those of the epilogue; map takes 1"),
            ("s(4,1)", "s(3,1)", "operand \"y\" has elements written twice"),
        ],
    );
    refused(
        ATTENTION,
        &[
            ("(0.125,causal)", "(0.125,)", "op at byte 19: found \",)\", expected \")\""),
            ("n:r6", "n:r3", "the axes are 4 queries and 3 keys; a causal attention needs as many keys as queries"),
            ("in.k", "in.t=f32[]@s()a4;in.k", "have 4 inputs besides those of the epilogue; attention takes 3"),
            ("v=f32", "v=i8", "operand \"v\" has type i8; attention takes floating-point types"),
            ("h:b2", "h:p2", "axis \"h\" does not fit attention; expected batch axes in q, k, v and the output"),
            ("[h,n,e]@s(30,5,1)", "[n,e]@s(5,1)", "axis \"h\" does not fit attention"),
            ("n:r6,", "n:r6,z:r2,", "axis \"z\" does not fit attention"),
            (
                "[h,n,d]@s(42,7,1)",
                "[h,n+d-1:9,d]@s(42,7,1)",
                "operand \"k\" has a bound; attention reads and writes no padding",
            ),
        ],
    );
}

/// A text that differs from `MATMUL` or `EVERYTHING` in one place, and words of its refusal.
#[test]
fn other_texts_are_refused_with_field_place_and_expectation() {
    refused(
        MATMUL,
        &[
            ("tw1;", "tw2;", "version at byte 0: found \"tw2\", expected \"tw1;\""),
            ("contract.madd", "contract.mad", "op at byte 4: found \"contract.mad\", expected one of contract.madd"),
            ("m:p512", "M:p512", "axes at byte 18: found \"M:p512,n:p512,k:r512\", expected an axis name"),
            ("m:p512", "m:x512", "axes at byte 20: found \"x512,n:p512,k:r512\", expected an axis kind"),
            ("m:p512", "m:p0512", "expected a whole number below 2^64 without leading zeros"),
            ("m:p512", "m:p+512", "expected a whole number"),
            ("m:p512", "m:p99999999999999999999", "expected a whole number below 2^64"),
            ("m:p512", "m:p0", "at byte 18: axis \"m\" has extent 0; expected 1 to 2147483647"),
            ("m:p512", "m:p2147483648", "axis \"m\" has extent 2147483648"),
            ("m:p512", "m:p8..8/1", "axis \"m\" has extent 8..8/1; expected lo below hi"),
            ("m:p512", "m:p3..8/2", "expected lo below hi, both multiples of 2"),
            ("n:p512", "m:p3,n:p512", "at byte 25: axis \"m\" has the name of an earlier one"),
            ("in.a=", "in.a =", "operand at byte 43: found \" =f32[m,k]@s(512,1)a\", expected \"=\""),
            ("in.a=", "on.a=", "operand at byte 39: found \"on.a=f32[m,k]@s(512,\", expected one of in out io"),
            ("in.b=", "in.a=", "operand \"a\" has the name of an earlier one"),
            ("in.b=", "out.b=", "at byte 65: operand \"b\" is the output of a contraction"),
            ("=f32[m,k]", "=f33[m,k]", "expected one of f32 f16 bf16 f64 i8 u8 i32"),
            ("[m,k]", "[m,z]", "operand at byte 50: found \"z]@s(512,1)a64\", expected the name of an axis"),
            ("[m,k]", "[m,1*k]", "at byte 50: not canonical, expected \"k]@s(512,1)a64;in.b="),
            ("[m,k]", "[m,k+0]", "not canonical, expected \"]@s"),
            ("[m,k]", "[m,+k]", "expected an axis name or a number"),
            ("[m,k]", "[m,0*k]", "malformed terms in subscript 1"),
            ("[m,k]", "[m,k+m]", "malformed terms in subscript 1; expected axes in order"),
            ("[m,k]", "[m,1+k]", "found \"+k]@s(512,1)a64\", expected \"]\""),
            ("[m,k]", "[m,k:512]", "superfluous bound 512 in subscript 1"),
            ("[m,k]", "[m,k-1]", "subscript 1 reaching -1; expected a bound"),
            ("[m,k]", "[m,k-1:0]", "superfluous bound 0 in subscript 1"),
            ("[m,k]", "[m,k-1:2147483648]", "a number of 2^31 or more in subscript 1"),
            ("[m,k]", "[m,2147483648*k]", "a number of 2^31 or more in subscript 1"),
            ("[m,k]@s(512,1)", "[2147483647*m,2147483647*k]@s(0,0)", "operand \"a\" spans 2^62 bytes or more"),
            ("[m,k]@s(512,1)", "[2147483647*m,2147483647*k]@s(4294967296,1)", "operand \"a\" spans 2^62 bytes or more"),
            ("[m,k]", "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,m,k]", "17 subscripts; expected 0 to 16"),
            ("[m,k]", "[m,k+2147483648]", "a number of 2^31 or more in subscript 1"),
            ("[m,k]", "[m,k", "expected \"]\""),
            ("@s(512,1)", "@s(512)", "1 strides for 2 subscripts"),
            ("@s(512,1)", "@t(512,1)", "expected strides such as s(512,1), or free"),
            ("@s(512,1)", "@s(9223372036854775807,1)", "spans 2^62 bytes or more"),
            ("a64;in", "a48;in", "alignment 48; expected a power of two"),
            ("a64;in", "a2097152;in", "alignment 2097152"),
            ("a64;in", "a64~a;in", "shares memory with \"a\", which is no other operand"),
            ("a64;in", "a64~z;in", "shares memory with \"z\""),
            ("a64;in", "a64<>;in", "malformed prologue"),
            ("a64;in", "a64<x y>;in", "operand at byte 66: found \" y>\", expected \">\""),
            ("out.c=f32[m,n]", "out.c=f32[m,k]", "operand \"c\" is the output of a contraction"),
            ("out.c=f32[m,n]", "out.c=f32[m,n-1:512]", "operand \"c\" is the output of a contraction"),
            ("out.c=f32[m,n]@s(512,1)", "out.c=f32[m,n]@s(511,1)", "operand \"c\" has elements written twice"),
            ("out.c=f32[m,n]", "out.c=f32[m,m]", "operand \"c\" has elements written twice"),
            ("out.c", "in.c", "the operands are never written"),
            ("acc=f32", "acc=f3", "acc at byte 122: found \"f3\""),
            ("epi=-", "epi=", "epi at byte 130: found \";\", expected bias relu"),
            ("epi=-", "epi=relu.", "expected bias relu"),
            ("epi=-", "epi=bias(c)", "at byte 130: the epilogue names operand \"c\"; expected an in operand"),
            ("epi=-", "epi=bias(d)", "names operand \"d\""),
            ("epi=-", "epi=add(a)", "the epilogue reads operand \"a\" by an index that does not fit"),
            ("epi=-", "epi=scale(1.0)", "epi at byte 136: found \"1.0)\", expected 1, the shortest decimal"),
            ("epi=-", "epi=scale(inf)", "a constant that does not fit scale"),
            ("epi=-", "epi=scale(NaN)", "a constant that does not fit scale"),
            ("epi=-", "epi=scale(-0)", "expected 0, the shortest decimal"),
            ("epi=-", "epi=scale(x)", "expected a decimal number"),
            ("epi=-", "epi=clip(2,1)", "a constant that does not fit clip"),
            ("epi=-", "epi=clip(1)", "expected \",\""),
            ("math=ieee", "math=iee", "math at byte 137: found \"iee\", expected one of ieee ftz fast"),
            ("det=fixed", "det=", "det at byte 146: found \";\", expected one of fixed any"),
            ("ws=268435456", "ws=4611686018427387904", "the workspace is 4611686018427387904 bytes"),
            ("ws=268435456", "ws=1 ", "ws at byte 156: found \" \", expected the end of the key"),
        ],
    );
    assert!(refusal("").contains("found the end"));
    assert!(refusal(&format!("{MATMUL}é")).contains("expected the end of the key"));
    assert!(refusal(&swap(EVERYTHING, "bias(bias)", "bias(x)")).contains("does not fit"));
    assert!(matches!(Workload::parse_key(&"x".repeat(1 << 19)), Err(KeyError::TooLong { .. })));
    let long = "a".repeat(33);
    assert!(
        refusal(&MATMUL.replacen("m:p512", &format!("{long}:p512"), 1).replace("[m", "[k")).contains("malformed name")
    );
    let prologue = format!("a64<{}>;in", "x".repeat(513));
    assert!(refusal(&swap(MATMUL, "a64;in", &prologue)).contains("malformed prologue"));
    let operands: String = (0..14).map(|i| format!("in.x{i}=f32[]@s()a1;")).collect();
    assert!(refusal(&swap(MATMUL, "in.a", &format!("{operands}in.a"))).contains("17 operands; expected 1 to 16"));
    let axes: Vec<String> = (0..17).map(|i| format!("a{i}:p1")).collect();
    assert!(
        refusal(&swap(MATMUL, "m:p512", &format!("{},m:p512", axes.join(",")))).contains("20 axes; expected 1 to 16")
    );
    assert!(refusal(&swap(MATMUL, "epi=-", &format!("epi=relu{}", ".relu".repeat(16)))).contains("17 steps"));
    assert!(refusal(&swap(MATMUL, "m:p512,n:p512", "m:p2147483647,n:p2147483647")).contains("2^62 operations"));
    assert!(
        refusal(&swap(MATMUL, "out.c", "io.c").replacen("in.b", "out.b", 1).replacen("[k,n]", "[m,n]", 1))
            .contains("out of order")
    );
}

#[test]
fn every_prefix_is_refused() {
    for text in CANONICAL {
        // The last field may lose digits and stay a number.
        for end in 0..text.rfind('=').unwrap() + 2 {
            assert!(Workload::parse_key(&text[..end]).is_err(), "{}", &text[..end]);
        }
    }
}

#[test]
fn vectors_are_unchanged() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/keys.txt");
    let stored = std::fs::read_to_string(&path).unwrap();
    let mut fresh = String::new();
    for line in stored.lines().filter(|line| line.starts_with('#') || line.starts_with("sugar ")) {
        writeln!(fresh, "{line}").unwrap();
        if let Some(sugar) = line.strip_prefix("sugar ") {
            let workload = Workload::parse(sugar).unwrap();
            writeln!(fresh, "key   {}\nid    {}\ntext  {}", workload.key(), workload.id(), workload.summary()).unwrap();
        }
    }
    if std::env::var_os("BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &fresh).unwrap();
    } else {
        assert!(stored.contains("\nid "), "the file has no vectors; run the test with BLESS=1");
        assert_eq!(stored, fresh, "keys changed; every stored result depends on them. BLESS=1 accepts the change");
    }
}

#[test]
fn the_document_shows_vectors_as_they_are() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(here.join("../docs/keys.md")).unwrap();
    let vectors = std::fs::read_to_string(here.join("tests/vectors/keys.txt")).unwrap();
    let mut shown = 0;
    for line in document
        .lines()
        .skip_while(|line| *line != "## Test vectors")
        .filter(|line| ["sugar ", "key   ", "id    "].iter().any(|p| line.starts_with(p)))
    {
        assert!(vectors.lines().any(|vector| vector == line), "docs/keys.md shows {line:?}, which is no vector");
        shown += 1;
    }
    assert!(shown >= 9, "{shown} lines of vectors in docs/keys.md");
}

fn subscripts(axes: usize) -> impl Strategy<Value = Subscript> {
    let terms = proptest::collection::btree_map(0..axes, prop_oneof![Just(1i64), -3..4i64], 0..3);
    (terms, -4..5i64, 1..40u64).prop_map(|(terms, offset, bound)| Subscript {
        terms: terms.into_iter().filter(|(_, coefficient)| *coefficient != 0).collect(),
        offset,
        bound: Some(bound),
    })
}

fn steps() -> impl Strategy<Value = EpilogueStep> {
    prop_oneof![
        Just(EpilogueStep::Relu),
        Just(EpilogueStep::GeluErf),
        Just(EpilogueStep::GeluTanh),
        Just(EpilogueStep::Silu),
        Just(EpilogueStep::Exp),
        Just(EpilogueStep::Log),
        Just(EpilogueStep::Tanh),
        Just(EpilogueStep::Erf),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(EpilogueStep::Scale),
        (any::<f64>(), any::<f64>())
            .prop_filter("ordered", |(lo, hi)| lo <= hi)
            .prop_map(|(lo, hi)| EpilogueStep::Clip(lo, hi)),
        proptest::sample::select(DType::ALL.to_vec()).prop_map(EpilogueStep::Cast),
    ]
}

/// Valid workloads with any field, not those that make sense: sums of any number of operands.
fn workloads() -> impl Strategy<Value = Workload> {
    let kinds = [AxisKind::Batch, AxisKind::Parallel, AxisKind::Reduction, AxisKind::Grouped];
    let extent = prop_oneof![
        (1..50u64).prop_map(Extent::Fixed),
        (1..5u64, 1..5u64, 1..9u64).prop_map(|(lo, more, multiple)| {
            Extent::Range { lo: lo * multiple, hi: (lo + more) * multiple, multiple }
        }),
    ];
    let axes = proptest::collection::vec((proptest::sample::select(kinds.to_vec()), extent), 1..5);
    axes.prop_flat_map(|axes| {
        let operand = (
            proptest::sample::select(DType::ALL.to_vec()),
            proptest::collection::vec((subscripts(axes.len()), 0..1000u64), 0..4),
            any::<bool>(),
            0..8u32,
            proptest::option::of("[A-Za-z0-9_.,:=()+*/-]{1,20}"),
        );
        let rest = (any::<bool>(), any::<bool>(), 0..1u64 << 62);
        (Just(axes), proptest::collection::vec(operand, 1..4), proptest::collection::vec(steps(), 0..4), rest)
    })
    .prop_map(|(axes, operands, epilogue, (fast, any, workspace_bytes))| {
        let last = operands.len() - 1;
        let mut workload = Workload {
            op: Op::ContractMadd,
            axes: axes
                .into_iter()
                .zip(0..)
                .map(|((kind, extent), i)| Axis { name: format!("x{i}"), kind, extent })
                .collect(),
            operands: Vec::new(),
            acc: DType::F32,
            epilogue,
            math: if fast { MathMode::Fast } else { MathMode::Ftz },
            det: if any { Determinism::Any } else { Determinism::Fixed },
            workspace_bytes,
        };
        for (i, (dtype, dims, free, align, prologue)) in operands.into_iter().enumerate() {
            let (index, strides): (Vec<Subscript>, Vec<u64>) = dims.into_iter().unzip();
            workload.operands.push(Operand {
                role: if i == last { Role::Out } else { Role::In },
                name: format!("t{i}"),
                dtype,
                index,
                storage: if free { Storage::Free } else { Storage::Strides(strides) },
                align: 1 << align,
                alias: (i > 0).then(|| "t0".into()),
                prologue,
            });
        }
        // The output steps over every axis that is not reduced; its strides may leave gaps.
        let kept = (0..workload.axes.len()).filter(|axis| workload.axes[*axis].kind != AxisKind::Reduction);
        let kept: Vec<usize> = kept.collect();
        let shape: Vec<u64> = kept.iter().map(|axis| workload.axes[*axis].extent.max()).collect();
        let gap = workspace_bytes % 3 + 1;
        let output = &mut workload.operands[last];
        output.index = kept.into_iter().map(Subscript::axis).collect();
        if output.storage != Storage::Free {
            output.storage = Storage::Strides(row_major(&shape).iter().map(|stride| stride * gap).collect());
        }
        // A bound is written exactly where it can be left.
        for subscript in workload.operands.iter_mut().flat_map(|operand| &mut operand.index) {
            let reach = |(axis, factor): &(usize, i64)| factor * (workload.axes[*axis].extent.max() as i64 - 1);
            let reaches: Vec<i64> = subscript.terms.iter().map(reach).collect();
            let lowest: i64 = subscript.offset + reaches.iter().map(|reach| reach.min(&0)).sum::<i64>();
            let highest: i64 = subscript.offset + reaches.iter().map(|reach| reach.max(&0)).sum::<i64>();
            subscript.bound = subscript.bound.filter(|bound| lowest < 0 || highest >= *bound as i64);
        }
        workload
    })
    .prop_filter("valid", |workload| workload.validate().is_ok())
}

/// A small workload of every family.
fn samples() -> impl Strategy<Value = Workload> {
    (any::<u64>(), 0..6u8).prop_map(|(seed, family)| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        match family {
            0 => samples::contraction(&mut rng),
            1 => samples::activated(&mut rng),
            2 => samples::rows(&mut rng),
            3 => samples::attention(&mut rng),
            4 => samples::map(&mut rng),
            _ => samples::reduction(&mut rng),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn keys_and_workloads_are_one_to_one(left in workloads(), right in workloads()) {
        let key = left.key();
        prop_assert!(key.bytes().all(|byte| (0x21..0x7f).contains(&byte)), "{}", key);
        prop_assert_eq!(&Workload::parse_key(&key).unwrap(), &left);
        prop_assert_eq!(left == right, key == right.key());
    }

    #[test]
    fn every_family_has_keys(workload in samples()) {
        prop_assert_eq!(workload.validate(), Ok(()));
        prop_assert_eq!(&Workload::parse_key(&workload.key()).unwrap(), &workload);
    }

    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(Workload::parse(&text).is_err());
        let key = format!("tw1;contract.madd;{text}");
        prop_assert!(Workload::parse_key(&key).is_err());
    }

    #[test]
    fn what_parses_after_mutation_is_canonical(
        base in prop_oneof![
            workloads().prop_map(|w| w.key()),
            proptest::sample::select(CANONICAL.map(String::from).to_vec()),
        ],
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..3u8, 32u8..127), 1..4),
    ) {
        let mut bytes = base.into_bytes();
        for (at, edit, byte) in edits {
            let at = at.index(bytes.len());
            match edit {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => { bytes.remove(at); }
            }
        }
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(workload) = Workload::parse_key(&text) {
            prop_assert_eq!(workload.key(), text);
        }
    }
}
