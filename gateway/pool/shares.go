package pool

// shares counts the queued calls of each client, so that a full queue can displace the last call of the one that has
// the most, without a look at all calls.
type shares struct {
	byClient map[string]*share
	most     ordered[*share]
}

// share are the queued calls of one client: the last is the one to displace.
type share struct {
	client string
	calls  ordered[*waiter] // the last first
	place  int              // in most
}

func newShares() shares {
	return shares{byClient: map[string]*share{}, most: ordered[*share]{
		before: func(a, b *share) bool { return len(a.calls.items) > len(b.calls.items) },
		place:  func(s *share) *int { return &s.place },
	}}
}

func (s *shares) add(w *waiter) {
	own := s.byClient[w.client]
	if own == nil {
		own = &share{client: w.client, calls: ordered[*waiter]{
			before: func(a, b *waiter) bool { return b.before(a.arrival) },
			place:  func(w *waiter) *int { return &w.sharePlace },
		}}
		s.byClient[w.client] = own
		s.most.push(own)
	}
	own.calls.push(w)
	s.most.fix(own)
}

func (s *shares) remove(w *waiter) {
	own := s.byClient[w.client]
	own.calls.remove(w)
	if len(own.calls.items) > 0 {
		s.most.fix(own)
		return
	}
	s.most.remove(own)
	delete(s.byClient, w.client)
}

// displaceable is the last call of the client that has the most, if that has more than client even after client has
// another one; else nil.
func (s *shares) displaceable(client string) *waiter {
	has := 0
	if own := s.byClient[client]; own != nil {
		has = len(own.calls.items)
	}
	if most := s.most.first(); most != nil && len(most.calls.items) > has+1 {
		return most.calls.first()
	}
	return nil
}
