package lifecycle

// AllowedIn lists the events that state s takes, in the table's order.
func AllowedIn(s State) []EventKind {
	var kinds []EventKind
	for _, step := range table {
		if step.from == s {
			kinds = append(kinds, step.event)
		}
	}
	return kinds
}
