// Package ordered has a heap from which any item can be removed.
package ordered

import "container/heap"

// Heap has its items in an order, of which the first is known. The items know their places in it, so that each can be
// removed. It is not safe for concurrent use.
type Heap[T any] struct {
	Items  []T // in the order of a heap
	Before func(a, b T) bool
	// Place is where an item keeps its index in Items; -1 once it has been removed.
	Place func(T) *int
}

// Len is the number of items.
func (h *Heap[T]) Len() int { return len(h.Items) }

// Push adds an item.
func (h *Heap[T]) Push(item T) { heap.Push((*byPlace[T])(h), item) }

// Remove removes an item.
func (h *Heap[T]) Remove(item T) { heap.Remove((*byPlace[T])(h), *h.Place(item)) }

// Fix finds the place of an item whose order has changed.
func (h *Heap[T]) Fix(item T) { heap.Fix((*byPlace[T])(h), *h.Place(item)) }

// First returns the first item, the zero value if there is none.
func (h *Heap[T]) First() (first T) {
	if len(h.Items) > 0 {
		first = h.Items[0]
	}
	return first
}

// byPlace implements heap.Interface.
type byPlace[T any] Heap[T]

func (b *byPlace[T]) Len() int           { return len(b.Items) }
func (b *byPlace[T]) Less(i, j int) bool { return b.Before(b.Items[i], b.Items[j]) }

func (b *byPlace[T]) Swap(i, j int) {
	b.Items[i], b.Items[j] = b.Items[j], b.Items[i]
	*b.Place(b.Items[i]), *b.Place(b.Items[j]) = i, j
}

func (b *byPlace[T]) Push(x any) {
	*b.Place(x.(T)) = len(b.Items)
	b.Items = append(b.Items, x.(T))
}

func (b *byPlace[T]) Pop() any {
	last := len(b.Items) - 1
	item := b.Items[last]
	clear(b.Items[last:])
	b.Items = b.Items[:last]
	*b.Place(item) = -1
	return item
}
