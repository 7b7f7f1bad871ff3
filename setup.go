package tempool

import (
	"context"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"

	"github.com/tempool/tempool/api"
)

// MissingSearchAttributes lists the search attributes of Tempool that the namespace does not have with type Keyword.
func (c *Client) MissingSearchAttributes(ctx context.Context) ([]string, error) {
	answer, err := c.temporal.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: c.namespace})
	if err != nil {
		return nil, c.fromTemporal(err, "list search attributes")
	}
	var missing []string
	for _, name := range api.SearchAttributes() {
		if answer.GetCustomAttributes()[name] != enums.INDEXED_VALUE_TYPE_KEYWORD {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// Setup registers the missing search attributes and returns their names. It requires operator rights in the namespace.
func (c *Client) Setup(ctx context.Context) ([]string, error) {
	missing, err := c.MissingSearchAttributes(ctx)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	request := &operatorservice.AddSearchAttributesRequest{Namespace: c.namespace,
		SearchAttributes: map[string]enums.IndexedValueType{}}
	for _, name := range missing {
		request.SearchAttributes[name] = enums.INDEXED_VALUE_TYPE_KEYWORD
	}
	if _, err := c.temporal.OperatorService().AddSearchAttributes(ctx, request); err != nil {
		return nil, c.fromTemporal(err, "add search attributes")
	}
	return missing, nil
}
