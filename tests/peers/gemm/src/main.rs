//! `gemm-peer THREADS`: matrix products of the crate `gemm`, timed on demand, with the protocol of `worker.py`.

use std::error::Error;
use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use gemm::Parallelism;
use serde::Deserialize;
use serde_json::{Value, json};

/// A sample holds enough calls for the clock's own cost to vanish.
const LEAST_SAMPLE: Duration = Duration::from_micros(200);

/// As long as our side is busy with compiling and checking before it samples.
const WARM_UP: Duration = Duration::from_millis(100);

/// Elements of the output that are recomputed by hand.
const CHECKED: usize = 64;

#[derive(Deserialize)]
struct Request {
    prepare: Line,
    #[serde(default)]
    reader: bool,
}

#[derive(Deserialize)]
struct Line {
    op: String,
    dtype: String,
    shape: Value,
}

/// A batch of row-major products `out[m, n] = a[m, k] · b[k, n]`.
struct Product {
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    out: Vec<f32>,
    parallelism: Parallelism,
    /// Each call is followed by one that reads the output.
    reader: bool,
}

impl Product {
    fn new(request: &Request, threads: usize) -> Result<Product, String> {
        let line = &request.prepare;
        if !["matmul", "batch_matmul"].contains(&line.op.as_str()) || line.dtype != "f32" {
            return Err(format!("the crate has no {} of {}", line.op, line.dtype));
        }
        let size = |name: &str, otherwise: Option<u64>| {
            let size = line.shape[name].as_u64().or(otherwise).filter(|size| *size > 0);
            size.and_then(|size| usize::try_from(size).ok()).ok_or_else(|| format!("{name} is no size"))
        };
        let (batch, m, n, k) = (size("B", Some(1))?, size("M", None)?, size("N", None)?, size("K", None)?);
        let mut random = Random(1);
        let mut values = |len: usize| (0..len).map(|_| random.next()).collect();
        let (a, b) = (values(batch * m * k), values(batch * k * n));
        let parallelism = if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None };
        Ok(Product { batch, m, n, k, a, b, out: vec![f32::NAN; batch * m * n], parallelism, reader: request.reader })
    }

    fn call(&mut self) {
        let (m, n, k) = (self.m, self.n, self.k);
        for ((a, b), out) in
            self.a.chunks_exact(m * k).zip(self.b.chunks_exact(k * n)).zip(self.out.chunks_exact_mut(m * n))
        {
            let (out, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
            let (parallelism, n_stride, k_stride) = (self.parallelism, n as isize, k as isize);
            // SAFETY: the strides (columns, then rows) describe row-major matrices of exactly these lengths.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    out,
                    1,
                    n_stride,
                    false,
                    a,
                    1,
                    k_stride,
                    b,
                    1,
                    n_stride,
                    0.0f32,
                    1.0f32,
                    false,
                    false,
                    false,
                    parallelism,
                );
            }
        }
        if self.reader {
            black_box(self.out.iter().fold(0, |seen, value| seen | value.to_bits()));
        }
    }

    /// Compares elements spread over the output with sums in binary64.
    fn check(&self) -> Result<(), String> {
        let last = self.batch * self.m * self.n - 1;
        for at in (0..CHECKED).map(|i| i * last / (CHECKED - 1)) {
            let (row, column) = (at / self.n, at % self.n);
            let b = &self.b[row / self.m * self.k * self.n..];
            let terms = self.a[row * self.k..][..self.k].iter().enumerate();
            let wanted: f64 = terms.map(|(p, a)| f64::from(*a) * f64::from(b[p * self.n + column])).sum();
            let found = f64::from(self.out[at]);
            if (found - wanted).abs().partial_cmp(&(1e-4 * (self.k as f64).sqrt())) != Some(std::cmp::Ordering::Less) {
                return Err(format!("element {at} is {found}, should be {wanted}"));
            }
        }
        Ok(())
    }

    fn sample(&mut self, calls: u32) -> Duration {
        let start = Instant::now();
        for _ in 0..calls {
            self.call();
        }
        start.elapsed()
    }

    fn measure(&mut self, seconds: f64) -> Value {
        let (mut calls, start) = (1, Instant::now());
        while self.sample(calls) < LEAST_SAMPLE {
            calls *= 2;
        }
        while start.elapsed() < WARM_UP {
            self.sample(calls);
        }
        let start = Instant::now();
        let mut samples = Vec::new();
        while samples.is_empty() || start.elapsed().as_secs_f64() < seconds {
            samples.push(self.sample(calls).as_secs_f64() * 1e9 / f64::from(calls));
        }
        samples.sort_by(f64::total_cmp);
        json!({ "median_ns": samples[samples.len() / 2], "min_ns": samples[0], "calls": calls as usize * samples.len() })
    }
}

/// Numbers between -1 and 1 (xorshift64): products of constants would draw less power than those of data.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

fn prepare(line: &str, threads: usize) -> Result<Product, String> {
    let request: Request = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let mut product = Product::new(&request, threads)?;
    product.call();
    product.check()?;
    Ok(product)
}

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::args().nth(1).ok_or("usage: gemm-peer THREADS")?.parse()?;
    let mut out = std::io::stdout();
    let mut product = None;
    for line in std::io::stdin().lines() {
        let line = line?;
        let answer = match (line.strip_prefix("go "), &mut product) {
            (Some(seconds), Some(product)) => Product::measure(product, seconds.parse()?),
            (Some(_), None) => return Err("nothing was prepared".into()),
            (None, _) => {
                product = None;
                match prepare(&line, threads) {
                    Ok(prepared) => {
                        product = Some(prepared);
                        json!({ "ok": true, "checked": true })
                    }
                    Err(why) => json!({ "ok": false, "why": why }),
                }
            }
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}
