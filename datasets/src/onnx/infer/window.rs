//! Sliding windows: what convolutions and pools do to each spatial dimension.

use super::super::call::Call;
use super::super::value::Unknown;

/// The window along one spatial dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// Extent of the input.
    pub(crate) input: u64,
    /// Extent of the kernel, without dilation.
    pub(crate) kernel: u64,
    /// Distance of neighbouring windows.
    pub(crate) stride: u64,
    /// Distance of neighbouring kernel elements.
    pub(crate) dilation: u64,
    /// Zeros before the first element.
    pub(crate) pad_begin: u64,
    /// Zeros after the last element.
    pub(crate) pad_end: u64,
    /// Extent of the output.
    pub(crate) output: u64,
}

/// A list of positive integers, one per spatial dimension, 1 when absent.
fn positive(call: &Call<'_>, name: &str, spatial: usize) -> Result<Vec<u64>, Unknown> {
    let Some(list) = call.ints(name)?.filter(|list| !list.is_empty()) else { return Ok(vec![1; spatial]) };
    let values: Option<Vec<u64>> = list.iter().map(|x| u64::try_from(*x).ok().filter(|x| *x > 0)).collect();
    values
        .filter(|values| values.len() == spatial)
        .ok_or_else(|| Unknown::because(format!("attribute \"{name}\" is {list:?}, not {spatial} integers above 0")))
}

/// The windows of a convolution or pool over `input` with a kernel of `kernel`, one per spatial dimension.
///
/// `ceil` rounds the number of windows up (pools only); a window that would begin in the padding behind the input is
/// left out, as since operator set 19.
pub(crate) fn windows(call: &Call<'_>, input: &[u64], kernel: &[u64], ceil: bool) -> Result<Vec<Window>, Unknown> {
    let spatial = input.len();
    if kernel.len() != spatial || spatial == 0 {
        return Err(Unknown::because(format!("a kernel of {kernel:?} does not fit spatial dimensions {input:?}")));
    }
    let strides = positive(call, "strides", spatial)?;
    let dilations = positive(call, "dilations", spatial)?;
    let auto = call.text("auto_pad")?.unwrap_or("NOTSET");
    let pads = explicit_pads(call, spatial)?;
    let mut found = Vec::with_capacity(spatial);
    for axis in 0..spatial {
        let mut window = Window {
            input: input[axis],
            kernel: kernel[axis],
            stride: strides[axis],
            dilation: dilations[axis],
            pad_begin: 0,
            pad_end: 0,
            output: 0,
        };
        match auto {
            "SAME_UPPER" | "SAME_LOWER" => window.pad_same(auto == "SAME_UPPER")?,
            "VALID" => {}
            "NOTSET" | "" => (window.pad_begin, window.pad_end) = (pads[axis], pads[axis + spatial]),
            other => return Err(Unknown::because(format!("auto_pad \"{other}\" is not known"))),
        }
        window.output = window.count(ceil)?;
        found.push(window);
    }
    Ok(found)
}

/// The attribute `pads`: all begins, then all ends.
fn explicit_pads(call: &Call<'_>, spatial: usize) -> Result<Vec<u64>, Unknown> {
    let Some(list) = call.ints("pads")?.filter(|list| !list.is_empty()) else { return Ok(vec![0; 2 * spatial]) };
    let pads: Option<Vec<u64>> = list.iter().map(|x| u64::try_from(*x).ok()).collect();
    pads.filter(|pads| pads.len() == 2 * spatial).ok_or_else(|| {
        Unknown::because(format!("attribute \"pads\" is {list:?}, not {} integers of at least 0", 2 * spatial))
    })
}

impl Window {
    /// Extent from the first to the last kernel element.
    fn reach(&self) -> Option<u64> {
        self.kernel.checked_sub(1)?.checked_mul(self.dilation)?.checked_add(1)
    }

    /// Pads such that the output has `ceil(input / stride)` elements; the odd one goes behind with `upper`.
    fn pad_same(&mut self, upper: bool) -> Result<(), Unknown> {
        let total = (|| {
            let last = self.input.div_ceil(self.stride).checked_sub(1)?.checked_mul(self.stride)?;
            Some(last.checked_add(self.reach()?)?.saturating_sub(self.input))
        })();
        let total = total.ok_or_else(|| self.does_not_fit())?;
        (self.pad_begin, self.pad_end) =
            if upper { (total / 2, total - total / 2) } else { (total - total / 2, total / 2) };
        Ok(())
    }

    /// How many windows there are.
    fn count(&self, ceil: bool) -> Result<u64, Unknown> {
        let counted = (|| {
            let padded = self.input.checked_add(self.pad_begin)?.checked_add(self.pad_end)?;
            let room = padded.checked_sub(self.reach()?)?;
            if !ceil {
                return (room / self.stride).checked_add(1);
            }
            let last = room.div_ceil(self.stride);
            let begins_behind = last.checked_mul(self.stride)? >= self.input.checked_add(self.pad_begin)?;
            Some(if begins_behind { last } else { last.checked_add(1)? })
        })();
        counted.filter(|count| *count > 0).ok_or_else(|| self.does_not_fit())
    }

    fn does_not_fit(&self) -> Unknown {
        Unknown::because(format!(
            "a kernel of {} (dilation {}) does not fit an input of {} padded by {} and {}",
            self.kernel, self.dilation, self.input, self.pad_begin, self.pad_end
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(input: u64, kernel: u64, stride: u64, dilation: u64, pads: (u64, u64)) -> Window {
        Window { input, kernel, stride, dilation, pad_begin: pads.0, pad_end: pads.1, output: 0 }
    }

    #[test]
    fn counts_follow_the_definition() {
        assert_eq!(window(224, 7, 2, 1, (3, 3)).count(false), Ok(112));
        assert_eq!(window(5, 3, 1, 2, (0, 0)).count(false), Ok(1));
        assert_eq!(window(112, 3, 2, 1, (0, 0)).count(false), Ok(55));
        assert_eq!(window(112, 3, 2, 1, (0, 0)).count(true), Ok(56));
        // Begins are 0, 2, 4 and 6; the last lies in the padding behind the 1 + 5 elements.
        assert_eq!(window(5, 2, 2, 1, (1, 1)).count(true), Ok(3));
        assert!(window(2, 3, 1, 1, (0, 0)).count(false).is_err());
        assert!(window(2, 0, 1, 1, (0, 0)).count(false).is_err());
        assert!(window(u64::MAX, 3, 1, 1, (1, 1)).count(false).is_err());
    }

    #[test]
    fn same_padding_puts_the_odd_zero_where_it_is_told() {
        let mut upper = window(224, 3, 2, 1, (0, 0));
        upper.pad_same(true).unwrap();
        assert_eq!((upper.pad_begin, upper.pad_end, upper.count(false)), (0, 1, Ok(112)));
        let mut lower = window(224, 3, 2, 1, (0, 0));
        lower.pad_same(false).unwrap();
        assert_eq!((lower.pad_begin, lower.pad_end, lower.count(false)), (1, 0, Ok(112)));
        let mut wide = window(5, 1, 3, 1, (0, 0));
        wide.pad_same(true).unwrap();
        assert_eq!((wide.pad_begin, wide.pad_end, wide.count(false)), (0, 0, Ok(2)));
    }
}
