"""Growth of the cost of a row with the cluster: the question compares five sizes with each other."""


def test_closing_ratio(closing):
    closing("scaling", {"slope_verify", "slope_commit"})
