package spec

// Validate says what is wrong with a spec that did not come from a file: the same rules, in the same words, without a line. The
// error is a *Error.
func (s Spec) Validate() error {
	e, _ := check(&s)
	if e == nil {
		return nil
	}
	return e
}

// check returns the first thing that is wrong, and which other key has to do with it.
func check(s *Spec) (e *Error, with string) {
	if e := checkRules(s); e != nil {
		return e, ""
	}
	return checkConflicts(s)
}
