package launcher

// forbidNewPrivileges does nothing: macOS cannot forbid new privileges.
func forbidNewPrivileges() error { return nil }
