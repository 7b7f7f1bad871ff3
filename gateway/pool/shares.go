package pool

import "container/heap"

// shares counts the queued calls of each client, so that a full queue can displace the last call of the one that has
// the most, without a look at all calls. The zero value is empty.
type shares struct {
	byClient map[string]*share
	most     shareHeap
}

// share are the queued calls of one client, by their turns: the last is the one to displace.
type share struct {
	client string
	calls  lastFirst
	index  int // in most
}

func (s *shares) add(w *waiter) {
	own := s.byClient[w.client]
	if own == nil {
		own = &share{client: w.client}
		if s.byClient == nil {
			s.byClient = map[string]*share{}
		}
		s.byClient[w.client] = own
		heap.Push(&s.most, own)
	}
	heap.Push(&own.calls, w)
	heap.Fix(&s.most, own.index)
}

func (s *shares) remove(w *waiter) {
	own := s.byClient[w.client]
	heap.Remove(&own.calls, w.shareIndex)
	if len(own.calls) > 0 {
		heap.Fix(&s.most, own.index)
		return
	}
	heap.Remove(&s.most, own.index)
	delete(s.byClient, w.client)
}

// displaceable is the last call of the client that has the most, if that has more than client even after client has
// another one; else nil.
func (s *shares) displaceable(client string) *waiter {
	has := 0
	if own := s.byClient[client]; own != nil {
		has = len(own.calls)
	}
	if len(s.most) == 0 || len(s.most[0].calls) <= has+1 {
		return nil
	}
	return s.most[0].calls[0]
}

type shareHeap []*share

func (h shareHeap) Len() int           { return len(h) }
func (h shareHeap) Less(i, j int) bool { return len(h[i].calls) > len(h[j].calls) }
func (h shareHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *shareHeap) Push(x any) {
	s := x.(*share)
	s.index = len(*h)
	*h = append(*h, s)
}

func (h *shareHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// lastFirst has the waiter with the latest turn at its top.
type lastFirst []*waiter

func (h lastFirst) Len() int           { return len(h) }
func (h lastFirst) Less(i, j int) bool { return h[j].before(h[i]) }
func (h lastFirst) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].shareIndex, h[j].shareIndex = i, j
}

func (h *lastFirst) Push(x any) {
	w := x.(*waiter)
	w.shareIndex = len(*h)
	*h = append(*h, w)
}

func (h *lastFirst) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}
