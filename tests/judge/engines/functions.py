"""pypaimon on a REST catalog (its address, a database): prints the functions, then creates one with SQL as its body."""

import json
import sys

from pypaimon import CatalogFactory
from pypaimon.common.identifier import Identifier
from pypaimon.function.function import FunctionImpl
from pypaimon.function.function_definition import FunctionDefinition

uri, database = sys.argv[1:]
catalog = CatalogFactory.create(
    {"metastore": "rest", "uri": uri, "warehouse": "main", "token.provider": "bear", "token": "token"}
)
read = {}
for name in catalog.list_functions(database):
    function = catalog.get_function(Identifier.from_string(f"{database}.{name}"))
    read[name] = [
        [[field.name, str(field.type), field.description] for field in function.input_params() or ()],
        [str(field.type) for field in function.return_params() or ()],
        sorted((engine, type(made).__name__) for engine, made in function.definitions().items()),
        function.comment(),
        function.is_deterministic(),
    ]
print(json.dumps(read))
area, made = (Identifier.from_string(f"{database}.{name}") for name in ("area", "theirs"))
known = catalog.get_function(area)
parameters = {"input_params": known.input_params(), "return_params": known.return_params()}
definitions = {"spark": FunctionDefinition.sql("w + h")}
function = FunctionImpl(
    identifier=made, **parameters, deterministic=True, definitions=definitions, comment=None, options={}
)
catalog.create_function(made, function, False)
