package loop

// task is one activity or timer that can be called off. One that its slot no longer holds is not listened to. Either is called in
// the end: the run's context remembers the task's context until then, with all its options.
type Task struct {
	Cancel  func() // calls it off
	Release func() // lets go of it when it has ended
}

// releaseTask lets go of what slot holds, which has ended.
func ReleaseTask(slot **Task) {
	(*slot).Release()
	*slot = nil
}

// cancelTask cancels what slot holds, if anything, and stops listening to it.
func CancelTask(slot **Task) {
	if *slot != nil {
		(*slot).Cancel()
		*slot = nil
	}
}
