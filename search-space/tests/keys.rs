//! Keys and workloads are one-to-one; everything else is refused with a place. Vectors: `tests/vectors/keys.txt`.

#![allow(clippy::unwrap_used, reason = "helpers of tests stop the test")]

use std::fmt::Write;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tilewright_search_space::Workload;
use tilewright_search_space::workload::{
    Axis, AxisKind, DType, Determinism, EpilogueStep, Extent, KeyError, MathMode, Op, Operand, Role, Storage, Subscript,
};

const MATMUL: &str = "tw1;contract.madd;m:p512,n:p512,k:r512;in.a=f32[m,k]@s(512,1)a64;in.b=f32[k,n]@s(512,1)a64;\
                      out.c=f32[m,n]@s(512,1)a64;acc=f32;epi=-;math=ieee;det=fixed;ws=268435456";
/// Uses every construct of the grammar.
const EVERYTHING: &str = "tw1;attention;b:b2,q:p1..64/1,g:g7,d:p8,r:r3;in.x=f16[b,2*q+r-1:64,-d+7]@s(512,8,1)a16;\
                          in.w=bf16[r,d]@freea64<(x-zp)*scale:1/2>;in.t=i8[]@s()a1;in.bias=f64[8*b+d]@s(1)a8;\
                          io.z=u8[g]@s(0)a1;out.y=i32[b,0,d]@s(8,8,1)a64~x;acc=f64;\
                          epi=bias(bias).relu.gelu_erf.gelu_tanh.silu.clip(-inf,6.5).scale(1e-7).add(bias).cast(f16);\
                          math=fast;det=any;ws=0";

fn refusal(text: &str) -> String {
    Workload::parse_key(text).unwrap_err().to_string()
}

#[test]
fn canonical_texts_round_trip() {
    for text in [MATMUL, EVERYTHING] {
        let workload = Workload::parse_key(text).unwrap();
        assert_eq!(workload.key(), text);
        assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
    }
}

/// A text that differs from `MATMUL` or `EVERYTHING` in one place, and words of its refusal.
#[test]
fn other_texts_are_refused_with_field_place_and_expectation() {
    let swap = |base: &str, from: &str, to: &str| {
        assert!(base.contains(from), "{from}");
        base.replacen(from, to, 1)
    };
    let mut unexpected = Vec::new();
    for (from, to, words) in [
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
    ] {
        let message = refusal(&swap(MATMUL, from, to));
        if !message.contains(words) {
            unexpected.push(format!("{from} -> {to}: {message}"));
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
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
    for text in [MATMUL, EVERYTHING] {
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
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(EpilogueStep::Scale),
        (any::<f64>(), any::<f64>())
            .prop_filter("ordered", |(lo, hi)| lo <= hi)
            .prop_map(|(lo, hi)| EpilogueStep::Clip(lo, hi)),
        proptest::sample::select(DType::ALL.to_vec()).prop_map(EpilogueStep::Cast),
    ]
}

/// Valid workloads with any field, not those that make sense. The operation is one without rules for its output.
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
            op: Op::Map,
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
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let text = String::from_utf8_lossy(&bytes);
        prop_assert!(Workload::parse(&text).is_err());
        let key = format!("tw1;contract.madd;{text}");
        prop_assert!(Workload::parse_key(&key).is_err());
    }

    #[test]
    fn what_parses_after_mutation_is_canonical(
        base in prop_oneof![workloads().prop_map(|w| w.key()), Just(MATMUL.to_string()), Just(EVERYTHING.to_string())],
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
