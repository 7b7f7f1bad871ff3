package display

import (
	"go.temporal.io/sdk/temporal"

	"github.com/tempool/tempool/api"
)

// The search attributes of pools and workers.
var (
	AttributePool   = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributePool)
	AttributeState  = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributeState)
	AttributeHealth = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributeHealth)
	AttributeHost   = temporal.NewSearchAttributeKeyKeyword(api.SearchAttributeHost)
)
