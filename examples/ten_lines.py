import dflearn as dfl

problem = dfl.problems.ShortestPath(5, 5, seed=1)  # a grid whose edge costs depend on ten features
data = dfl.label(problem.generate(2000), problem.solver())  # costs, and the optimal decision of each instance
train, validation, test = data.split(seed=1)
model = dfl.models.Linear(10, problem.program.p)  # any torch module will do
loss = dfl.losses.SCE(dfl.Smoothed(problem.program, mu=1.0))
dfl.fit(model, loss, train, epochs=10)
print(dfl.evaluate(model, problem, test))
