package pool

import "container/heap"

// ordered is a heap whose items know their places in it. The zero value of place in an item must be -1.
type ordered[T any] struct {
	items  []T
	before func(a, b T) bool
	place  func(T) *int // of its index; -1 while it is not in the heap
}

func (o *ordered[T]) push(item T)   { heap.Push((*byPlace[T])(o), item) }
func (o *ordered[T]) remove(item T) { heap.Remove((*byPlace[T])(o), *o.place(item)) }
func (o *ordered[T]) fix(item T)    { heap.Fix((*byPlace[T])(o), *o.place(item)) }

// first returns the first item, the zero value if there is none.
func (o *ordered[T]) first() (first T) {
	if len(o.items) > 0 {
		first = o.items[0]
	}
	return first
}

// byPlace implements heap.Interface.
type byPlace[T any] ordered[T]

func (b *byPlace[T]) Len() int           { return len(b.items) }
func (b *byPlace[T]) Less(i, j int) bool { return b.before(b.items[i], b.items[j]) }

func (b *byPlace[T]) Swap(i, j int) {
	b.items[i], b.items[j] = b.items[j], b.items[i]
	*b.place(b.items[i]), *b.place(b.items[j]) = i, j
}

func (b *byPlace[T]) Push(x any) {
	*b.place(x.(T)) = len(b.items)
	b.items = append(b.items, x.(T))
}

func (b *byPlace[T]) Pop() any {
	last := len(b.items) - 1
	item := b.items[last]
	clear(b.items[last:])
	b.items = b.items[:last]
	*b.place(item) = -1
	return item
}
