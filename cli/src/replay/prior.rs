//! Records of the same kernel on another device, in the terms of the space that is searched.

use datasets::devices;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use search_space::RecordedSpace;
use search_space::space::ParameterSpace;
use search_space::strategy::{Row, Told};

/// A recorded space that is a prior of another one.
#[derive(Debug)]
pub struct Prior<'a> {
    source: &'a RecordedSpace,
    /// For each parameter of the space searched: the source's parameter, and for each of its values the position here.
    matches: Vec<Match>,
    shuffled: bool,
}

#[derive(Debug)]
enum Match {
    /// Position of the source's parameter; position here of each of its values.
    Parameter(usize, Vec<Option<u16>>),
    /// The source lacks the parameter, which has one value here.
    Constant,
}

impl<'a> Prior<'a> {
    /// Matches parameters by name and values by what they are. `None` when a parameter that varies on one side is unknown
    /// to the other, or no value of some parameter occurs in both: then it is another kernel.
    #[must_use]
    pub fn of(source: &'a RecordedSpace, space: &ParameterSpace) -> Option<Prior<'a>> {
        let theirs = source.space();
        let unknown = |name: &str| space.position(name).is_none();
        if theirs.params().iter().any(|param| param.values.len() > 1 && unknown(&param.name)) {
            return None;
        }
        let of = |param: &search_space::space::Parameter| {
            let Some(at) = theirs.position(&param.name) else {
                return (param.values.len() == 1).then_some(Match::Constant);
            };
            let here = |value| (0u16..).zip(&param.values).find(|(_, own)| *own == value).map(|(place, _)| place);
            let places: Vec<Option<u16>> = theirs.params()[at].values.iter().map(here).collect();
            places.iter().any(Option::is_some).then_some(Match::Parameter(at, places))
        };
        let matches = space.params().iter().map(of).collect::<Option<Vec<Match>>>()?;
        Some(Prior { source, matches, shuffled: false })
    }

    /// Deals the results out to the rows at random: a prior that is wrong on purpose.
    #[must_use]
    pub fn shuffled(self, shuffled: bool) -> Prior<'a> {
        Prior { shuffled, ..self }
    }

    /// How alike the source's device is to `device`, from 0 to 1, by makers and published figures; devices of which the maker
    /// is not known are taken to be unlike.
    #[must_use]
    pub fn likeness(&self, device: &str) -> f64 {
        let makers = [&self.source.device, device].map(devices::maker);
        let known = devices::find(&self.source.device).zip(devices::find(device));
        let ratios = known.map_or_else(Vec::new, |(theirs, own)| own.ratios(theirs));
        cost_model::likeness(makers[0].is_some() && makers[0] == makers[1], ratios)
    }

    /// `n` random rows of the source, failed ones included; those with a value that is unknown here are left out. `number`
    /// tells the priors of one search apart.
    #[must_use]
    pub fn draw(&self, n: usize, seed: u64, number: u64) -> Vec<Row> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Strategies use stream 0 of the same seed.
        rng.set_stream(number + 1);
        let mut rows = self.source.sample_rows(n, &mut rng);
        if self.shuffled {
            let mut results: Vec<Option<Told>> = rows.iter().map(|row| row.told).collect();
            results.shuffle(&mut rng);
            rows.iter_mut().zip(results).for_each(|(row, told)| row.told = told);
        }
        let here = |row: Row| {
            let place = |matched: &Match| match matched {
                Match::Parameter(at, places) => places[usize::from(row.config[*at])],
                Match::Constant => Some(0),
            };
            let config: Option<Vec<u16>> = self.matches.iter().map(place).collect();
            Some(Row { config: config?.into(), told: row.told })
        };
        rows.into_iter().filter_map(here).collect()
    }
}
