"""Extensions of the protocol as a contributor writes them: a version of one module, a binding of its modules, one row each."""
