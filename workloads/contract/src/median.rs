//! The median of a few figures.

/// Return the median; None if there are no figures.
#[must_use]
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(sorted[last / 2], sorted[upper]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_odd_figure_does_not_move_it() {
        assert_eq!(median([]), None);
        assert_eq!(median([9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
    }
}
